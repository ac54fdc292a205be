//! Which threads is computing shared among, and what if they cannot be started?

use std::io;
use std::num::NonZero;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rayon::{ThreadBuilder, ThreadPoolBuilder};

/// Starts as many threads as the machine runs at once, or as `RAYON_NUM_THREADS` says. Where fewer can be started, these
/// do the work; where none can, the one that is there does.
pub fn start() {
    let stated = std::env::var("RAYON_NUM_THREADS").ok().and_then(|count| count.parse().ok());
    let all = || thread::available_parallelism().map_or(1, NonZero::get);
    let wanted = stated.filter(|count| *count > 0).unwrap_or_else(all);
    program::state_threads(wanted);
    // A pool that cannot start one of its threads is no pool, and rayon does not try again: they start before it.
    let mut workers = (0..wanted).map_while(|_| worker().ok()).collect::<Vec<_>>();
    #[cfg(unix)]
    if workers.len() < wanted {
        begin_again_without_threads_of_candle();
    }
    let pool = ThreadPoolBuilder::new().num_threads(workers.len().max(1));
    let built = if workers.is_empty() {
        pool.use_current_thread().build_global()
    } else {
        let hand = |work| {
            let worker: Sender<ThreadBuilder> = workers.pop().ok_or(io::ErrorKind::WouldBlock)?;
            worker.send(work).map_err(|_| io::ErrorKind::BrokenPipe.into())
        };
        pool.spawn_handler(hand).build_global()
    };
    // There is one already where this is called twice.
    drop(built);
}

/// Candle starts threads of its own for large values, and panics where it cannot. It learns from its environment alone
/// that it shall start none, so this program is started in its own place, with that said. It has read and written nothing
/// yet. Where that is not possible either, what is small can still be done.
#[cfg(unix)]
fn begin_again_without_threads_of_candle() {
    use std::env::{args_os, current_exe, var_os};
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    const COUNT: &str = "CANDLE_NUM_THREADS";
    if var_os(COUNT).is_some_and(|count| count == "1") {
        return;
    }
    let mut args = args_os();
    if let (Some(name), Ok(program)) = (args.next(), current_exe()) {
        drop(Command::new(program).arg0(name).args(args).env(COUNT, "1").exec());
    }
}

/// A thread that does the work that it is sent.
fn worker() -> io::Result<Sender<ThreadBuilder>> {
    let (hand, work) = channel::<ThreadBuilder>();
    thread::Builder::new().spawn(move || {
        if let Ok(work) = work.recv() {
            work.run();
        }
    })?;
    Ok(hand)
}
