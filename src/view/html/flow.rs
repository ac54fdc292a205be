//! The flow of the shapes as a picture: a box for every step of the story, and lines from what it reads.

use maud::{Markup, html};

use super::sheet::StepSheet;

const WIDTH: usize = 176;
const HEIGHT: usize = 44;
const ACROSS: usize = 20;
const DOWN: usize = 30;

struct Box<'a> {
    step: &'a StepSheet,
    x: usize,
    y: usize,
}

/// The picture. Steps on one level read steps of the levels above.
pub fn flow(steps: &[StepSheet]) -> Markup {
    let mut levels: Vec<usize> = Vec::with_capacity(steps.len());
    for step in steps {
        let above = step.inputs.iter().filter(|at| is_drawn(steps, **at));
        let level = above.filter_map(|at| levels.get(*at)).max().map_or(0, |level| level + 1);
        levels.push(level);
    }
    let rows =
        levels.iter().zip(steps).filter(|(_, step)| step.is_story).map(|(level, _)| level + 1);
    let rows = rows.max().unwrap_or(0);
    let on = |row: usize| {
        let all = steps.iter().zip(&levels);
        all.filter(move |(step, level)| step.is_story && **level == row).map(|(step, _)| step)
    };
    let columns = (0..rows).map(|row| on(row).count()).max().unwrap_or(0);
    let across = |count: usize| count * WIDTH + count.saturating_sub(1) * ACROSS;
    let (width, height) = (across(columns) + 2, rows * (HEIGHT + DOWN));
    let mut boxes: Vec<Box> = Vec::new();
    for row in 0..rows {
        let left = (width - across(on(row).count())) / 2;
        boxes.extend(on(row).enumerate().map(|(at, step)| Box {
            step,
            x: left + at * (WIDTH + ACROSS),
            y: row * (HEIGHT + DOWN) + 1,
        }));
    }
    let of = |at: usize| {
        steps.get(at).and_then(|step| boxes.iter().find(|other| other.step.name == step.name))
    };
    html! {
        svg class="flow" viewBox={ "0 0 " (width) " " (height) } width=(width) height=(height)
            role="group" aria-label=(super::texts::FLOW) {
            @for to in &boxes {
                @for from in to.step.inputs.iter().filter_map(|at| of(*at)) {
                    path d={
                        "M" (from.x + WIDTH / 2) " " (from.y + HEIGHT)
                        " C" (from.x + WIDTH / 2) " " (from.y + HEIGHT + DOWN)
                        " " (to.x + WIDTH / 2) " " (to.y.saturating_sub(DOWN))
                        " " (to.x + WIDTH / 2) " " (to.y)
                    } {}
                }
            }
            @for Box { step, x, y } in &boxes {
                a href={ "#" (step.name) } data-step=(step.name) {
                    rect x=(x) y=(y) width=(WIDTH) height=(HEIGHT) rx="6" {}
                    text x=(x + WIDTH / 2) y=(y + 18) { (step.name) }
                    text class="shape" x=(x + WIDTH / 2) y=(y + 35) { (step.size()) }
                }
            }
        }
    }
}

fn is_drawn(steps: &[StepSheet], at: usize) -> bool {
    steps.get(at).is_some_and(|step| step.is_story)
}
