//! Where somebody is on a walk, and what the keys do.

use std::borrow::Cow;
use std::collections::HashMap;

use ratatui::crossterm::event::KeyCode;

use crate::View;
use crate::page::Spell;
use base::error::Result;
use check::{Report, Status};
use config::{Config, Labels};
use program::{Axis, Cell, Explanation, Name, Step, Trace};

/// What Ctrl-C is read as, also while a name is typed.
pub const LEAVE: KeyCode = KeyCode::Null;

/// What a walk goes through.
pub struct Route<'a> {
    /// The run, or what a file recorded.
    pub trace: &'a Trace,
    /// Its config.
    pub config: &'a Config,
    /// What a recorded file should hold, and how it compares.
    pub check: Option<(&'a Trace, &'a Report)>,
    /// How numbers are rounded.
    pub decimals: usize,
    /// Whether colours may be used.
    pub color: bool,
    /// How settings are told.
    pub spell: Spell,
}

/// What stands beside a step's table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// The tables that the cell is made of.
    Factors,
    /// What should have been recorded.
    Recomputed,
    /// What was recorded, less what should have been.
    Difference,
}

/// Where somebody is on the walk.
pub struct Walk<'a> {
    pub route: Route<'a>,
    pub labels: Option<Labels>,
    pub view: View,
    /// The step, by its position in the trace.
    pub at: usize,
    /// The place on every axis, which the next step with that axis keeps.
    pub places: HashMap<Axis, usize>,
    pub beside: Beside,
    pub is_heat: bool,
    /// How many lines of the help are above its box, where it is shown.
    pub help: Option<usize>,
    /// What is typed of a step's name.
    pub search: Option<String>,
    /// The cells that were left by following a number back.
    pub trail: Vec<Cell>,
    /// How many lines of the explanation are to be above its window, where somebody scrolled it.
    pub scrolled: Option<usize>,
    /// How many are.
    pub above: usize,
    /// What there is to say of the last key.
    pub said: Cow<'static, str>,
}

impl<'a> Walk<'a> {
    /// At the first step, or where a recorded file first differs.
    pub fn new(route: Route<'a>) -> Self {
        let first = route.trace.steps().iter().position(|step| !step.name.row().is_detail);
        let mut walk = Self {
            labels: route.config.labels(),
            view: View { decimals: route.decimals, ..View::default() },
            at: first.unwrap_or_default(),
            places: HashMap::new(),
            beside: Beside::Factors,
            is_heat: false,
            help: None,
            search: None,
            trail: Vec::new(),
            scrolled: None,
            above: 0,
            said: Cow::default(),
            route,
        };
        if let Some((_, report)) = walk.route.check
            && let Some(first) = report.first_divergence()
            && let Some(name) = first.step
        {
            walk.beside = Beside::Recomputed;
            let index = first.comparison.as_ref().map(|comparison| comparison.worst.clone());
            walk.go_to(&Cell { step: name.to_string(), index: index.unwrap_or_default() });
        }
        walk
    }

    /// The step that is looked at.
    pub fn step(&self) -> &'a Step {
        &self.route.trace.steps()[self.at]
    }

    /// The place on each of the step's axes.
    pub fn index(&self) -> Vec<usize> {
        self.index_in(self.step())
    }

    /// The place on each axis of a step.
    pub fn index_in(&self, step: &Step) -> Vec<usize> {
        let place = |axis: Axis| self.places.get(&axis).copied().unwrap_or_default();
        step.axes.iter().map(|(axis, size)| place(axis).min(size.saturating_sub(1))).collect()
    }

    /// The number that is looked at.
    pub fn cell(&self) -> Cell {
        Cell { step: self.step().name.to_string(), index: self.index() }
    }

    /// How it came about.
    pub fn explained(&self) -> Result<Explanation<'a>> {
        self.route.trace.explain(&self.cell())
    }

    /// How the step compares, where it was recorded.
    pub fn status(&self, name: Name) -> Option<Status> {
        let (_, report) = self.route.check?;
        report.steps.iter().find(|step| step.step == Some(name)).map(|step| step.status)
    }

    fn go_to(&mut self, cell: &Cell) {
        let steps = self.route.trace.steps();
        let Some(at) = steps.iter().position(|step| step.name.as_str() == cell.step) else {
            return;
        };
        self.at = at;
        self.scrolled = None;
        for ((axis, _), place) in steps[at].axes.iter().zip(&cell.index) {
            self.places.insert(axis, *place);
        }
    }

    /// Does what a key says. Whether the walk goes on.
    pub fn press(&mut self, key: KeyCode) -> bool {
        self.said = Cow::default();
        if key == LEAVE {
            return false;
        }
        if let Some(typed) = self.search.take() {
            self.type_name(typed, key);
            return true;
        }
        if let Some(above) = self.help {
            self.help = match key {
                KeyCode::Down | KeyCode::PageDown => Some(above + 1),
                KeyCode::Up | KeyCode::PageUp => Some(above.saturating_sub(1)),
                _ => None,
            };
            return true;
        }
        match key {
            KeyCode::Char('q') => return false,
            KeyCode::Char('?') => self.help = Some(0),
            KeyCode::Char('/') => self.search = Some(String::new()),
            KeyCode::Char('n' | ' ') => self.turn(1),
            KeyCode::Char('p') => self.turn(-1),
            KeyCode::Char('h') => self.pick(Axis::Head, 1),
            KeyCode::Char('H') => self.pick(Axis::Head, -1),
            KeyCode::Char('b') => self.pick(Axis::Batch, 1),
            KeyCode::Char('B') => self.pick(Axis::Batch, -1),
            KeyCode::Char('w') => self.view.why = !self.view.why,
            KeyCode::Char('m') => self.toggle_heat(),
            KeyCode::Char('d') => self.next_difference(),
            KeyCode::Tab => self.change_beside(),
            KeyCode::Enter => self.follow(),
            KeyCode::Backspace => self.go_back(),
            KeyCode::PageDown => self.scrolled = Some(self.above + 1),
            KeyCode::PageUp => self.scrolled = Some(self.above.saturating_sub(1)),
            KeyCode::Esc => self.close(),
            KeyCode::Up => self.go(2, -1),
            KeyCode::Down => self.go(2, 1),
            KeyCode::Left => self.go(1, -1),
            KeyCode::Right => self.go(1, 1),
            KeyCode::Home => self.go(1, isize::MIN),
            KeyCode::End => self.go(1, isize::MAX),
            _ => {}
        }
        true
    }

    /// To the next step that the trace view shows, or the one before.
    fn turn(&mut self, by: isize) {
        let steps = self.route.trace.steps();
        let shown = |at: &usize| self.view.shows(steps[*at].name);
        let next = match by {
            1 => (self.at + 1..steps.len()).find(shown),
            _ => (0..self.at).rev().find(shown),
        };
        match next {
            Some(at) => (self.at, self.scrolled) = (at, None),
            None => {
                self.said = tr!(
                    "this is the {which} step",
                    which = if by > 0 { tr!("last") } else { tr!("first") }
                )
                .into();
            }
        }
    }

    /// To another place on the axis that is so many from the end: 1 along a row, 2 to another row.
    fn go(&mut self, from_end: usize, by: isize) {
        let axes: Vec<Axis> = self.step().axes.iter().map(|(axis, _)| axis).collect();
        if let Some(axis) = axes.len().checked_sub(from_end).and_then(|at| axes.get(at)) {
            self.move_along(*axis, by);
        }
    }

    /// To another head or batch item, from the last to the first.
    fn pick(&mut self, axis: Axis, by: isize) {
        let size = self.step().axes.iter().find(|(own, _)| *own == axis).map(|(_, size)| size);
        let size = match size {
            Some(size @ 2..) => size,
            Some(_) => {
                self.said = tr!(
                    "the {axis} axis of {step} has one place",
                    axis = axis.told(),
                    step = self.step().name
                )
                .into();
                return;
            }
            None => {
                self.said =
                    tr!("{step} has no {axis} axis", step = self.step().name, axis = axis.told())
                        .into();
                return;
            }
        };
        let place = self.places.get(&axis).copied().unwrap_or_default().min(size - 1);
        let next = if by > 0 { (place + 1) % size } else { (place + size - 1) % size };
        self.places.insert(axis, next);
        self.scrolled = None;
    }

    fn toggle_heat(&mut self) {
        self.is_heat = !self.is_heat;
        if self.is_heat {
            self.said = tr!("heat map of scores and weights: the higher, the darker").into();
        }
    }

    fn move_along(&mut self, axis: Axis, by: isize) {
        let size = self.step().axes.iter().find(|(own, _)| *own == axis).map(|(_, size)| size);
        let Some(last) = size.and_then(|size| size.checked_sub(1)) else { return };
        let place = self.places.get(&axis).copied().unwrap_or_default().min(last);
        self.places.insert(axis, place.saturating_add_signed(by).min(last));
        self.scrolled = None;
    }

    /// Back to the cell with the largest share in this one.
    fn follow(&mut self) {
        let Ok(explanation) = self.explained() else { return };
        let largest = explanation
            .terms
            .iter()
            .max_by(|left, right| left.value().abs().total_cmp(&right.value().abs()));
        let from = largest.and_then(|term| term.0.iter().find_map(|factor| factor.cell.clone()));
        match from {
            Some(cell) => {
                self.trail.push(self.cell());
                self.go_to(&cell);
            }
            None => self.said = tr!("this number is made of no other").into(),
        }
    }

    fn go_back(&mut self) {
        match self.trail.pop() {
            Some(cell) => self.go_to(&cell),
            None => self.said = tr!("no number was followed").into(),
        }
    }

    /// Closes what was opened last, or goes back to where a number was followed from.
    fn close(&mut self) {
        if self.view.why {
            self.view.why = false;
        } else if self.trail.is_empty() {
            self.said = tr!("nothing is open; q quits").into();
        } else {
            self.go_back();
        }
    }

    fn next_difference(&mut self) {
        let steps = self.route.trace.steps();
        let differs = |at: &usize| self.status(steps[*at].name) == Some(Status::Differs);
        match (self.at + 1..steps.len()).chain(0..=self.at).find(differs) {
            Some(at) => (self.at, self.scrolled) = (at, None),
            None if self.route.check.is_some() => self.said = tr!("no step differs").into(),
            None => self.said = tr!("nothing is compared: give a recorded file").into(),
        }
    }

    fn change_beside(&mut self) {
        self.beside = match self.beside {
            _ if self.route.check.is_none() => {
                self.said = tr!("nothing is compared: give a recorded file").into();
                Beside::Factors
            }
            Beside::Factors => Beside::Recomputed,
            Beside::Recomputed => Beside::Difference,
            Beside::Difference => Beside::Factors,
        };
    }

    /// Goes on with a name that is typed; Enter goes to the step.
    fn type_name(&mut self, mut typed: String, key: KeyCode) {
        match key {
            KeyCode::Esc => return,
            KeyCode::Enter => {
                match self.search_for(&typed) {
                    Some(at) => (self.at, self.scrolled) = (at, None),
                    None => self.said = tr!("no step is called {typed}", typed).into(),
                }
                return;
            }
            KeyCode::Backspace => {
                typed.pop();
            }
            KeyCode::Char(letter) => typed.push(letter),
            _ => {}
        }
        self.search = Some(typed);
    }

    /// The step of that name, or the first whose name begins with it, or has it.
    fn search_for(&self, typed: &str) -> Option<usize> {
        let typed = typed.trim();
        let names = || self.route.trace.steps().iter().map(|step| step.name.as_str());
        let is_any = |is: fn(&str, &str) -> bool| names().position(|name| is(name, typed));
        let found = || {
            is_any(|name, typed| name == typed)
                .or_else(|| is_any(|name, typed| name.starts_with(typed)))
                .or_else(|| is_any(|name, typed| name.contains(typed)))
        };
        if typed.is_empty() { None } else { found() }
    }
}
