//! What is said on a terminal while something takes long.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Nothing is said before.
const PATIENCE: Duration = Duration::from_secs(1);

/// A line on stderr, if that is a terminal, from the first second on until this is dropped.
pub struct Progress {
    done: Option<Sender<()>>,
    line: Option<JoinHandle<()>>,
}

impl Progress {
    /// Says what is being done.
    pub fn of(what: String) -> Self {
        let (done, is_done) = channel();
        let line = spawn(move || {
            if is_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let bar = ProgressBar::new_spinner().with_elapsed(PATIENCE);
                if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                    bar.set_style(style);
                }
                bar.set_message(what);
                bar.enable_steady_tick(Duration::from_millis(100));
                // It ends when the sender is dropped.
                let _ = is_done.recv();
                bar.finish_and_clear();
            }
        });
        Self { done: Some(done), line: Some(line) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.done.take());
        // A thread that failed to draw takes nothing with it.
        let _ = self.line.take().map(JoinHandle::join);
    }
}
