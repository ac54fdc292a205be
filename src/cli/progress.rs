//! What is said on a terminal while something takes long.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Nothing is said before.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the line moves.
const BEAT: Duration = Duration::from_millis(100);

/// A line on stderr, if that is a terminal, from the first second on until this is dropped; none where no thread can be
/// started to write it.
pub struct Progress {
    done: Option<Sender<()>>,
    line: Option<JoinHandle<()>>,
}

impl Progress {
    /// Says what is being done.
    pub fn of(what: String) -> Self {
        let (done, is_done) = channel();
        let line = Builder::new().spawn(move || {
            if is_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let bar = ProgressBar::new_spinner().with_elapsed(PATIENCE);
                if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                    bar.set_style(style);
                }
                bar.set_message(what);
                // It ends when the sender is dropped.
                while is_done.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                    bar.tick();
                }
                bar.finish_and_clear();
            }
        });
        Self { done: Some(done), line: line.ok() }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.done.take());
        // A thread that failed to draw takes nothing with it.
        let _ = self.line.take().map(JoinHandle::join);
    }
}
