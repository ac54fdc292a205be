//! What ends a walk from outside: a signal, or a terminal that goes away.

use std::time::Duration;

#[cfg(not(unix))]
pub use elsewhere::Outside;
#[cfg(unix)]
pub use unix::Outside;

/// How long a signal may wait.
pub const PATIENCE: Duration = Duration::from_millis(200);

#[cfg(unix)]
mod unix {
    use std::ffi::c_int;
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    use crate::walk::outside::PATIENCE;

    const SIGNALS: [c_int; 3] = [SIGHUP, SIGINT, SIGTERM];

    /// The signal that has come, or 0.
    pub struct Outside(Arc<AtomicUsize>);

    impl Outside {
        /// Begins to listen.
        ///
        /// # Errors
        /// If the system refuses that.
        pub fn listen() -> io::Result<Self> {
            let signal = Arc::new(AtomicUsize::new(0));
            for number in SIGNALS {
                let value = usize::try_from(number).unwrap_or_default();
                signal_hook::flag::register_usize(number, Arc::clone(&signal), value)?;
            }
            end_where_no_signal_is_heard()?;
            Ok(Self(signal))
        }

        /// Whether the walk has to end.
        pub fn has_come(&self) -> bool {
            self.0.load(Ordering::Relaxed) != 0
        }

        /// Waits for keys, and says whether there are any. A terminal that is gone is a signal, too: crossterm would read
        /// from it for ever.
        ///
        /// # Errors
        /// If the terminal cannot be asked.
        pub fn wait_for_keys(&self, patience: Duration) -> io::Result<bool> {
            let stdin = io::stdin();
            let mut terminal = [PollFd::new(&stdin, PollFlags::IN)];
            let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
            match poll(&mut terminal, Some(&patience)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let [terminal] = terminal;
            if terminal.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
                self.0.store(usize::try_from(SIGHUP).unwrap_or_default(), Ordering::Relaxed);
            }
            Ok(terminal.revents().contains(PollFlags::IN))
        }

        /// Ends the process by the signal that has come, if one has.
        ///
        /// # Errors
        /// If the system refuses that.
        pub fn end(self) -> io::Result<()> {
            match c_int::try_from(self.0.load(Ordering::Relaxed)) {
                Ok(signal) if signal != 0 => emulate_default_handler(signal),
                Ok(_) | Err(_) => Ok(()),
            }
        }
    }

    /// Ends the process by a signal that the walk has not heard after a while, as where its terminal goes away while it is
    /// read.
    fn end_where_no_signal_is_heard() -> io::Result<()> {
        let mut signals = Signals::new(SIGNALS)?;
        let watched = thread::Builder::new().spawn(move || {
            for signal in signals.forever() {
                thread::sleep(5 * PATIENCE);
                let _ = ratatui::try_restore();
                let _ = emulate_default_handler(signal);
            }
        });
        // Where no thread can be started, that is so rare that the walk goes on.
        drop(watched);
        Ok(())
    }
}

#[cfg(not(unix))]
mod elsewhere {
    use std::io;
    use std::time::Duration;

    use ratatui::crossterm::event;

    /// Nothing: these systems end a program with its terminal, and Ctrl-C is a key.
    pub struct Outside;

    impl Outside {
        pub fn listen() -> io::Result<Self> {
            Ok(Self)
        }

        pub fn has_come(&self) -> bool {
            false
        }

        /// Waits for keys; none is ever forgotten.
        pub fn wait_for_keys(&self, patience: Duration) -> io::Result<bool> {
            event::poll(patience).map(|_| false)
        }

        pub fn end(self) -> io::Result<()> {
            Ok(())
        }
    }
}
