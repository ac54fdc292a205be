//! The terminal of a walk: taken over, and left as it was.

use std::io;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};

use super::outside::{Outside, PATIENCE};
use super::state::{LEAVE, Route, Walk};

/// Walks until somebody leaves. The terminal is as it was afterwards, also after a panic or a signal, which then ends the
/// process.
///
/// # Errors
/// If the terminal cannot be read or written.
pub fn walk(route: &Route) -> io::Result<()> {
    let outside = Outside::listen()?;
    let trace = &route.trace.as_told();
    let route = Route { trace, ..*route };
    let terminal = ratatui::try_init()?;
    let walked = go(Walk::new(route), terminal, &outside);
    let restored = ratatui::try_restore();
    outside.end()?;
    walked.and(restored)
}

fn go(mut walk: Walk, mut terminal: DefaultTerminal, outside: &Outside) -> io::Result<()> {
    let mut drawn = None;
    let mut patience = PATIENCE;
    while !outside.has_come() {
        // The window may have changed before its changes were listened to.
        let size = Some(terminal.size()?);
        if drawn != size {
            terminal.draw(|frame| walk.draw(frame))?;
            drawn = size;
        }
        let has_keys = outside.wait_for_keys(patience)?;
        if outside.has_come() {
            break;
        }
        // Keys that were pressed at once are read at once, and wait there.
        if !event::poll(Duration::ZERO)? {
            patience = PATIENCE;
            if has_keys {
                // It was told of a key and of the window at once, and forgot the key until the terminal tells it again.
                disable_raw_mode().and_then(|()| enable_raw_mode())?;
            }
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
