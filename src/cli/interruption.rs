//! What becomes of the files that are being written when a signal ends the program?

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};

use file::{Output, undisturbed};

/// The files that are removed.
static BEGUN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Begins to watch for signals. Whoever sends one finds that the program has ended by it.
pub fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(listen);
}

#[cfg(unix)]
fn listen() {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;
    use std::thread;

    use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    // With a handler, a file that gets larger than is allowed is an error of writing as others are.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    let (ready, is_ready) = channel();
    // Where no thread can be started, signals end the program as they do without this.
    let started = thread::Builder::new().spawn(move || {
        let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
        let _ = ready.send(());
        for signal in signals.forever() {
            end_by(|| drop(emulate_default_handler(signal)));
        }
    });
    // An error says that nobody watches.
    let _ = started.map(|_| is_ready.recv());
}

#[cfg(windows)]
fn listen() {
    // What the system itself ends a program with, `STATUS_CONTROL_C_EXIT`.
    const CONTROL_C: i32 = 0xC000_013A_u32.cast_signed();
    let _ = ctrlc::set_handler(|| end_by(|| std::process::exit(CONTROL_C)));
}

/// Removes what is begun, and ends.
fn end_by(end: impl FnOnce()) {
    let _whole = undisturbed();
    let begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
    // What is not there any more has been written, or given up.
    begun.iter().for_each(|path| drop(fs::remove_file(path)));
    end();
}

/// Begins an output, and has its file removed if a signal ends the program: a signal that comes meanwhile waits.
pub fn begin<E>(create: impl FnOnce() -> Result<Output, E>) -> Result<Output, E> {
    let mut begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
    let output = create()?;
    begun.extend(output.temporary().map(Path::to_owned));
    Ok(output)
}
