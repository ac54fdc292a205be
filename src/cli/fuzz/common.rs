//! What do the failing cases of a sweep have in common?

use std::collections::BTreeMap;

use super::answer::State;
use super::case::Case;
use super::judged::{Judged, Sweep};
use super::rows::{Kind, Numbers, Takes};

/// A mistake, and the failing cases that it explains.
#[derive(Debug, Clone)]
pub struct Explained {
    /// Its name in the catalogue, or its kind.
    pub id: &'static str,
    /// Whether it has a name.
    pub is_known: bool,
    /// What the faulty code does, in the first of the cases.
    pub summary: String,
    /// The cases, by their places.
    pub cases: Vec<usize>,
}

/// The mistakes that explain failing cases: the one that explains most first, then what explains most of the others.
pub fn mistakes(sweep: &Sweep) -> Vec<Explained> {
    let mut all: BTreeMap<String, Explained> = BTreeMap::new();
    for (at, judged) in sweep.judged.iter().enumerate() {
        for found in judged.findings().flat_map(|found| std::iter::once(found).chain(&found.also)) {
            // What has no name is the same where it is said in the same words.
            let key = if found.is_known() { found.id } else { &*found.summary };
            let explained = all.entry(key.to_owned()).or_insert_with(|| Explained {
                id: found.id,
                is_known: found.is_known(),
                summary: found.summary.clone(),
                cases: Vec::new(),
            });
            if explained.cases.last() != Some(&at) {
                explained.cases.push(at);
            }
        }
    }
    let mut left: Vec<Explained> = all.into_values().collect();
    let (mut chosen, mut open) = (Vec::new(), Vec::new());
    open.extend(
        sweep.judged.iter().enumerate().filter(|(_, one)| one.is_wrong()).map(|(at, _)| at),
    );
    loop {
        let count = |one: &Explained| one.cases.iter().filter(|at| open.contains(at)).count();
        let best = left
            .iter()
            .enumerate()
            .max_by_key(|(at, one)| (count(one), one.is_known, usize::MAX - at));
        let Some((at, _)) = best.filter(|(_, one)| count(one) > 0) else { return chosen };
        let best = left.remove(at);
        open.retain(|at| !best.cases.contains(at));
        chosen.push(best);
    }
}

/// What is true of some cases.
struct Fact {
    text: String,
    /// Of which of the cases that were judged.
    holds: Vec<bool>,
}

/// What failing cases have in common.
#[derive(Debug, Clone, Default)]
pub struct Common {
    /// What is true of all failing cases and of no other; where there are several, each says the same.
    pub exactly: Vec<String>,
    /// Where nothing is: what is true of all failing cases, and of how many others.
    pub always: Vec<(String, usize)>,
}

/// What the failing cases have in common, as derived from the cases.
pub fn common(sweep: &Sweep, tile: usize) -> Common {
    let judged: Vec<&Judged> = sweep
        .judged
        .iter()
        .filter(|one| !matches!(one.state, State::Refused | State::Unchecked))
        .collect();
    let wrong: Vec<bool> = judged.iter().map(|one| one.is_wrong()).collect();
    let count = wrong.iter().filter(|is_wrong| **is_wrong).count();
    if count == 0 || count == wrong.len() {
        return Common::default();
    }
    let cases: Vec<&Case> = judged.iter().map(|one| one.case).collect();
    let facts = facts(&cases, &wrong, sweep, tile);
    let mut exactly: Vec<String> =
        facts.iter().filter(|fact| fact.holds == wrong).map(|fact| fact.text.clone()).collect();
    if exactly.is_empty() {
        exactly.extend(pair(&facts, &wrong));
    }
    exactly.truncate(3);
    if !exactly.is_empty() {
        return Common { exactly, always: Vec::new() };
    }
    let is_of_all =
        |fact: &&Fact| fact.holds.iter().zip(&wrong).all(|(holds, wrong)| *holds || !wrong);
    let others = |fact: &Fact| fact.holds.iter().filter(|holds| **holds).count() - count;
    let mut always: Vec<(String, usize)> = facts
        .iter()
        .filter(is_of_all)
        .map(|fact| (fact.text.clone(), others(fact)))
        .filter(|(_, others)| *others < count)
        .collect();
    always.sort_by_key(|(_, others)| *others);
    always.truncate(1);
    Common { exactly, always }
}

/// The first two facts that are both true of all failing cases, and of no other.
fn pair(facts: &[Fact], wrong: &[bool]) -> Option<String> {
    facts.iter().enumerate().find_map(|(at, left)| {
        let fits = |right: &&Fact| {
            let both = left.holds.iter().zip(&right.holds).map(|(left, right)| *left && *right);
            both.eq(wrong.iter().copied())
        };
        let right = facts.get(at + 1..)?.iter().find(fits)?;
        Some(tr!("{left}, and {right}", left = left.text, right = right.text))
    })
}

/// What may be true of cases, the plainest first.
fn facts(cases: &[&Case], wrong: &[bool], sweep: &Sweep, tile: usize) -> Vec<Fact> {
    let mut facts = Facts { cases, all: Vec::new() };
    facts.of_inputs();
    facts.add(tr!("some queries have no key"), |case| case.has_empty_rows(&sweep.settled));
    facts.of_shapes();
    facts.of_multiples(tile);
    facts.of_limits(wrong);
    facts.all
}

struct Facts<'a> {
    cases: &'a [&'a Case],
    all: Vec<Fact>,
}

impl Facts<'_> {
    fn add(&mut self, text: impl Into<String>, is_so: impl Fn(&Case) -> bool) {
        let text = text.into();
        // Limits may be the tile.
        if self.all.iter().all(|fact| fact.text != text) {
            let holds = self.cases.iter().map(|case| is_so(case)).collect();
            self.all.push(Fact { text, holds });
        }
    }

    fn of_inputs(&mut self) {
        for kind in Kind::ALL {
            self.add(tr!("the inputs are {kind}", kind), |case| case.kind == *kind);
        }
        self.add(tr!("the inputs have 16 bits"), |case| case.kind != Kind::F32);
        let (large, low) = (Numbers::Large, Numbers::Low);
        self.add(
            tr!("scores are so large that exp overflows unless their maximum is subtracted"),
            |case| case.numbers == large,
        );
        self.add(
            tr!("scores are so low that exp underflows unless their maximum is subtracted"),
            |case| case.numbers == low,
        );
        self.add(tr!("all scores are equal"), |case| case.numbers == Numbers::Equal);
        self.add(
            tr!(
                "scores are so large or so low that exp overflows or underflows unless their maximum is subtracted"
            ),
            |case| [large, low].contains(&case.numbers),
        );
        self.add(tr!("lengths are given"), |case| case.takes == Some(Takes::Lengths));
        self.add(tr!("a mask is given"), |case| case.takes == Some(Takes::AttnMask));
    }

    fn of_shapes(&mut self) {
        self.add(tr!("heads share keys and values"), |case| case.sizes()[2] < case.sizes()[1]);
        self.add(tr!("there is one head"), |case| case.sizes()[1] == 1);
        self.add(tr!("head_dim is not a power of two"), |case| !case.sizes()[5].is_power_of_two());
        self.add(tr!("there are fewer queries than keys"), |case| queries(case) < keys(case));
        self.add(tr!("there are more queries than keys"), |case| queries(case) > keys(case));
        self.add(tr!("queries and keys differ in number"), |case| queries(case) != keys(case));
        self.add(tr!("there is one query"), |case| queries(case) == 1);
        self.add(tr!("there is one key"), |case| keys(case) == 1);
    }

    fn of_multiples(&mut self, tile: usize) {
        // The tile that was stated is the likeliest, then the largest.
        let others = (1..8).rev().map(|bits| 1 << bits).filter(|of| *of != tile);
        for of in std::iter::once(tile).chain(others) {
            self.add(tr!("the number of keys is not a multiple of {of}", of), |case| {
                !keys(case).is_multiple_of(of)
            });
            self.add(tr!("the number of queries is not a multiple of {of}", of), |case| {
                !queries(case).is_multiple_of(of)
            });
        }
        self.add(tr!("there are more than {tile} keys", tile), |case| keys(case) > tile);
        self.add(tr!("there are fewer than {tile} keys", tile), |case| keys(case) < tile);
    }

    /// Beyond the least and the largest of the cases that are right.
    fn of_limits(&mut self, wrong: &[bool]) {
        let right = self.cases.iter().zip(wrong).filter(|(_, wrong)| !**wrong);
        let right: Vec<[usize; 6]> = right.map(|(case, _)| case.sizes()).collect();
        let limits = |size: usize| {
            let sizes = || right.iter().map(move |sizes| sizes[size]);
            sizes().min().zip(sizes().max()).filter(|(_, most)| *most > 1)
        };
        self.add(tr!("there is more than one query"), |case| queries(case) > 1);
        self.add(tr!("there is more than one head"), |case| case.sizes()[1] > 1);
        self.add(tr!("there is more than one batch item"), |case| case.sizes()[0] > 1);
        if let Some((fewest, most)) = limits(4) {
            self.add(tr!("there are more than {tile} keys", tile = most), |case| keys(case) > most);
            self.add(tr!("there are fewer than {tile} keys", tile = fewest), |case| {
                keys(case) < fewest
            });
        }
        if let Some((fewest, most)) = limits(3) {
            self.add(tr!("there are more than {most} queries", most), |case| queries(case) > most);
            self.add(tr!("there are fewer than {fewest} queries", fewest), |case| {
                queries(case) < fewest
            });
        }
        if let Some((least, most)) = limits(5) {
            self.add(tr!("head_dim is more than {most}", most), |case| case.sizes()[5] > most);
            self.add(tr!("head_dim is less than {least}", least), |case| case.sizes()[5] < least);
        }
        if let Some((_, most)) = limits(1) {
            self.add(tr!("there are more than {most} heads", most), |case| case.sizes()[1] > most);
        }
        if let Some((_, most)) = limits(0) {
            self.add(tr!("there are more than {most} batch items", most), |case| {
                case.sizes()[0] > most
            });
        }
    }
}

fn queries(case: &Case) -> usize {
    case.sizes()[3]
}

fn keys(case: &Case) -> usize {
    case.sizes()[4]
}
