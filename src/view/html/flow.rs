//! The flow of the steps as a picture: where each step stands in it, and the lines from what it reads.

use super::sheet::StepSheet;

/// From one step to the next that reads it, in pixels of the page.
const ACROSS: usize = 130;
/// From one lane to the next.
const DOWN: usize = 74;
/// A step's own box.
pub const WIDTH: usize = 112;
pub const HEIGHT: usize = 66;

/// A step in the picture.
pub struct Drawn {
    /// The place in the program.
    pub at: usize,
    /// Behind every step that it reads.
    level: usize,
    /// The lane: of a chain of steps one.
    lane: usize,
    /// The level of the last step that reads it.
    until: usize,
    /// The lines that lead to it, from its own corner.
    pub lines: Vec<String>,
}

impl Drawn {
    pub fn x(&self) -> usize {
        self.level * ACROSS
    }

    pub fn y(&self) -> usize {
        self.lane * DOWN
    }

    /// Whether both would stand in the way of each other in a lane.
    fn meets(&self, other: &Self) -> bool {
        self.level < other.until && other.level < self.until
    }

    /// A line from the right side of a step that it reads to its own left side. It changes lanes at once, or at its end
    /// where that lane is the free one.
    fn line(&self, from: &Self, turns_late: bool) -> String {
        let place = |large: usize, small: usize| large.abs_diff(small);
        let (back, up) = (self.x() - from.x() - WIDTH, place(self.y(), from.y()));
        let gap = ACROSS - WIDTH;
        let sign = if from.y() > self.y() { "" } else { "-" };
        let (start, middle) = (format!("M-{back} {sign}{up}"), gap / 2);
        let rise = if from.y() > self.y() { format!("-{up}") } else { up.to_string() };
        let turn = format!("c{middle} 0 {middle} {rise} {gap} {rise}");
        let straight = format!("h{}", back - gap);
        let (first, last) = if turns_late { (straight, turn) } else { (turn, straight) };
        format!("{start}{first}{last}")
    }
}

/// The steps of the list that a step is made of, through those that are not in it.
fn read(steps: &[StepSheet], at: usize) -> Vec<usize> {
    let inputs = steps.get(at).map(|step| step.inputs.as_slice()).unwrap_or_default();
    let own = |at: &usize| match steps.get(*at) {
        Some(step) if step.is_detail => read(steps, *at),
        _ => vec![*at],
    };
    inputs.iter().flat_map(own).collect()
}

/// The levels of steps, each of which reads some of those before it, and until which level one is read: what reads nothing
/// stands just before its first reader. Where no step reads another, they are a row.
fn levels(reads: &[Vec<usize>]) -> Vec<(usize, usize)> {
    let is_row = reads.iter().all(Vec::is_empty);
    let mut levels: Vec<usize> = Vec::new();
    for (at, own) in reads.iter().enumerate() {
        let behind = own.iter().filter_map(|read| levels.get(*read)).max().map(|level| level + 1);
        levels.push(behind.unwrap_or(if is_row { at } else { 0 }));
    }
    let readers = |at: usize, levels: &[usize]| -> Vec<usize> {
        let all = reads.iter().zip(levels);
        all.filter(|(own, _)| own.contains(&at)).map(|(_, level)| *level).collect()
    };
    for (at, _) in reads.iter().enumerate().filter(|(_, own)| own.is_empty()) {
        if let Some(first) = readers(at, &levels).into_iter().min() {
            levels[at] = first.saturating_sub(1);
        }
    }
    let until = |(at, level): (usize, &usize)| {
        let last = readers(at, &levels).into_iter().max().unwrap_or(0);
        (*level, last.max(level + 1))
    };
    levels.iter().enumerate().map(until).collect()
}

/// Where the steps stand that are not details. A step goes on in the lane of what it reads first, unless another has taken
/// that.
pub fn placed(steps: &[StepSheet]) -> Vec<Drawn> {
    let listed: Vec<usize> = (0..steps.len()).filter(|at| !steps[*at].is_detail).collect();
    let places = |at: &usize| {
        let read = read(steps, *at).into_iter();
        read.filter_map(|read| listed.iter().position(|own| *own == read)).collect()
    };
    let reads: Vec<Vec<usize>> = listed.iter().map(places).collect();
    let mut drawn: Vec<Drawn> = Vec::new();
    for ((at, reads), (level, until)) in listed.iter().zip(&reads).zip(levels(&reads)) {
        let mut own = Drawn { at: *at, level, lane: 0, until, lines: Vec::new() };
        let from: Vec<&Drawn> = reads.iter().filter_map(|read| drawn.get(*read)).collect();
        let is_read =
            |other: &Drawn| other.level < level && from.iter().any(|own| own.at == other.at);
        let is_free = |lane: &usize| {
            let mut others = drawn.iter().filter(|other| other.lane == *lane);
            others.all(|other| is_read(other) || !other.meets(&own))
        };
        let goes_on = from.iter().map(|other| other.lane).find(is_free);
        let lane = goes_on.or_else(|| (0..=drawn.len()).find(is_free)).unwrap_or_default();
        own.lane = lane;
        let is_between = |lane: usize, other: &&Drawn| {
            drawn.iter().any(|own| own.lane == lane && own.level > other.level && own.level < level)
        };
        own.lines =
            from.iter().map(|other| own.line(other, !is_between(other.lane, other))).collect();
        drawn.push(own);
    }
    drawn
}
