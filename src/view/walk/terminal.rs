//! The terminal of a walk: taken over, and left as it was.

use std::ffi::c_int;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::{Route, Walk};

/// How long a signal may wait.
const PATIENCE: Duration = Duration::from_millis(200);

/// What ends a walk from outside.
const SIGNALS: [c_int; 3] = [SIGHUP, SIGINT, SIGTERM];

/// What Ctrl-C is read as, also while a name is typed.
pub const LEAVE: KeyCode = KeyCode::Null;

/// Walks until somebody leaves. The terminal is as it was afterwards, also after a panic or a signal, which then ends the
/// process.
///
/// # Errors
/// If the terminal cannot be read or written.
pub fn walk(route: &Route) -> io::Result<()> {
    let signalled = Arc::new(AtomicUsize::new(0));
    for signal in SIGNALS {
        let number = usize::try_from(signal).unwrap_or_default();
        signal_hook::flag::register_usize(signal, Arc::clone(&signalled), number)?;
    }
    end_where_no_signal_is_heard()?;
    let trace = &route.trace.as_told();
    let route = Route { trace, ..*route };
    let terminal = ratatui::try_init()?;
    let walked = go(Walk::new(route), terminal, &signalled);
    let restored = ratatui::try_restore();
    match i32::try_from(signalled.load(Ordering::Relaxed)) {
        Ok(signal) if signal != 0 => emulate_default_handler(signal),
        Ok(_) | Err(_) => walked.and(restored),
    }
}

/// Ends the process by a signal that the walk has not heard after a while: crossterm reads for ever from a terminal that goes
/// away while it reads.
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

fn go(mut walk: Walk, mut terminal: DefaultTerminal, signalled: &AtomicUsize) -> io::Result<()> {
    let mut drawn = None;
    let mut patience = PATIENCE;
    while signalled.load(Ordering::Relaxed) == 0 {
        // The window may have changed before its changes were listened to.
        let size = Some(terminal.size()?);
        if drawn != size {
            terminal.draw(|frame| walk.draw(frame))?;
            drawn = size;
        }
        if is_gone(patience)? {
            signalled.store(usize::try_from(SIGHUP).unwrap_or_default(), Ordering::Relaxed);
            break;
        }
        // Keys that were pressed at once are read at once, and wait there.
        if !event::poll(Duration::ZERO)? {
            patience = PATIENCE;
            continue;
        }
        patience = Duration::ZERO;
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => match meant(key) {
                Some(key) if walk.press(key) => drawn = None,
                Some(_) => return Ok(()),
                None => {}
            },
            _ => drawn = None,
        }
    }
    Ok(())
}

/// Waits for keys, and tells whether the terminal is gone: crossterm would read from it for ever, and not hear a signal.
#[cfg(unix)]
fn is_gone(patience: Duration) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let stdin = io::stdin();
    let mut terminal = [PollFd::new(&stdin, PollFlags::IN)];
    let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
    match poll(&mut terminal, Some(&patience)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let [terminal] = terminal;
    Ok(terminal.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
}

/// Waits for keys. Other systems end a program with its terminal.
#[cfg(not(unix))]
fn is_gone(patience: Duration) -> io::Result<bool> {
    event::poll(patience).map(|_| false)
}

/// The key that somebody means, of those with another held down.
fn meant(key: KeyEvent) -> Option<KeyCode> {
    let has = |modifier| key.modifiers.contains(modifier);
    match key.code {
        KeyCode::Char('c') if has(KeyModifiers::CONTROL) => Some(LEAVE),
        // A line feed is what a terminal makes of Enter before it is taken over.
        KeyCode::Char('j') if has(KeyModifiers::CONTROL) => Some(KeyCode::Enter),
        KeyCode::Char(_) if has(KeyModifiers::CONTROL) || has(KeyModifiers::ALT) => None,
        code => Some(code),
    }
}
