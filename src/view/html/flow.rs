//! The flow of the shapes as a picture: a box for every step of the story, and lines from what it reads.

use maud::{Markup, html};

use super::address::address;
use super::sheet::StepSheet;

const WIDTH: usize = 176;
const HEIGHT: usize = 44;
const ACROSS: usize = 20;
const DOWN: usize = 30;

struct Drawn<'a> {
    step: &'a StepSheet,
    /// The place in the program.
    at: usize,
    /// Below every step that it reads.
    level: usize,
    /// The column: of a chain of steps one.
    lane: usize,
}

impl Drawn<'_> {
    fn x(&self) -> usize {
        self.lane * (WIDTH + ACROSS) + 1
    }

    fn y(&self) -> usize {
        self.level * (HEIGHT + DOWN) + 1
    }
}

/// Where the steps of the story stand. A step goes on in the lane of what it reads first, unless another has taken that.
fn placed(steps: &[StepSheet]) -> Vec<Drawn<'_>> {
    let mut drawn: Vec<Drawn> = Vec::new();
    let mut lanes = 0;
    for (at, step) in steps.iter().enumerate().filter(|(_, step)| step.is_story) {
        let read =
            || step.inputs.iter().filter_map(|at| drawn.iter().find(|other| other.at == *at));
        let level = read().map(|other| other.level + 1).max().unwrap_or(0);
        let is_last = |other: &&Drawn| {
            drawn.iter().rfind(|own| own.lane == other.lane).map(|own| own.at) == Some(other.at)
        };
        let lane = read().find(is_last).map_or(lanes, |other| other.lane);
        lanes = lanes.max(lane + 1);
        drawn.push(Drawn { step, at, level, lane });
    }
    drawn
}

/// The picture.
pub fn flow(steps: &[StepSheet]) -> Markup {
    let drawn = placed(steps);
    let right = drawn.iter().map(|own| own.x() + WIDTH + 1).max().unwrap_or(0);
    let bottom = drawn.iter().map(|own| own.y() + HEIGHT + 1).max().unwrap_or(0);
    let lines = drawn.iter().flat_map(|to| {
        let read = to.step.inputs.iter().filter_map(|at| drawn.iter().find(|from| from.at == *at));
        read.map(|from| line(from, to, &drawn))
    });
    html! {
        svg class="flow" viewBox={ "0 0 " (right) " " (bottom) } width=(right) height=(bottom) {
            @for line in lines { path d=(line) {} }
            @for own in &drawn {
                @let (x, y) = (own.x(), own.y());
                a href=(address(&own.step.name, &[])) {
                    rect x=(x) y=(y) width=(WIDTH) height=(HEIGHT) rx="6" {}
                    text x=(x + WIDTH / 2) y=(y + 18) { (own.step.name) }
                    text class="shape" x=(x + WIDTH / 2) y=(y + 35) { (own.step.size()) }
                }
            }
        }
    }
}

/// A line from a box down to another: it changes lanes at once, where its own goes on without it, or at its end.
fn line(from: &Drawn, to: &Drawn, all: &[Drawn]) -> String {
    let goes_on = all
        .iter()
        .any(|other| other.lane == from.lane && other.level > from.level && other.level < to.level);
    let (start, end) = (from.x() + WIDTH / 2, to.x() + WIDTH / 2);
    let (top, bottom) = (from.y() + HEIGHT, to.y());
    let middle = DOWN / 2;
    let across =
        |y: usize| format!("C{start} {} {end} {} {end} {}", y + middle, y + middle, y + DOWN);
    if goes_on {
        format!("M{start} {top}{}V{bottom}", across(top))
    } else {
        format!("M{start} {top}V{}{}", bottom - DOWN, across(bottom - DOWN))
    }
}
