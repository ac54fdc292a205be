//! How is a sweep told?

use serde_json::{Value, json};

use super::answer::State;
use super::case::Case;
use super::common::{Common, Explained, common, mistakes};
use super::judged::{Judged, Sweep};
use super::rows::Kind;
use base::error::{quoted, shown};
use base::lang;
use config::{CausalAlign, EmptyRow, Settings};
use view::{Block, Table, Text, Tone};

/// How many cases are named, and how many mistakes told.
const NAMED: usize = 4;

/// A sweep with what it comes to.
pub struct Told<'s, 'a> {
    sweep: &'s Sweep<'a>,
    mistakes: Vec<Explained>,
    common: Common,
    base: &'s Settings,
}

impl<'s, 'a> Told<'s, 'a> {
    /// What there is to be told of a sweep.
    pub fn new(sweep: &'s Sweep<'a>, base: &'s Settings, tile: usize) -> Self {
        Self { mistakes: mistakes(sweep), common: common(sweep, tile), sweep, base }
    }

    /// Whether nothing is wrong, and something is right.
    pub fn is_same(&self) -> bool {
        let all = &self.sweep.judged;
        !all.iter().any(Judged::is_wrong) && all.iter().any(|one| one.state == State::Same)
    }

    fn count(&self, state: State) -> usize {
        self.sweep.judged.iter().filter(|one| one.state == state).count()
    }

    fn verdict(&self) -> &'static str {
        if self.is_same() { "same" } else { "differs" }
    }

    /// The table, and what explains it.
    pub fn page(&self) -> Vec<Block> {
        let tone = if self.is_same() { Tone::Good } else { Tone::Bad };
        let cells = |one: &Judged| {
            // Of a forward pass there is one step.
            let step = one.first().filter(|_| self.base.backward == Some(true));
            let text = match one.state {
                State::Differs => step.unwrap_or(one.state.told()).to_owned(),
                state => state.told().to_owned(),
            };
            let tone = match one.state {
                State::Same => Tone::Good,
                State::Refused | State::Unchecked => Tone::Inherited,
                _ => Tone::Bad,
            };
            Text::toned(text, tone)
        };
        let all: Vec<(&Case, Text)> =
            self.sweep.judged.iter().map(|one| (one.case, cells(one))).collect();
        let mut blocks = vec![Block::Table(table(&all))];
        let counts = State::ALL
            .iter()
            .filter(|state| self.count(**state) > 0)
            .map(|state| format!("{} {}", self.count(*state), state.told()));
        let counts = lang::list(&counts.collect::<Vec<_>>());
        let cases = self.sweep.judged.len();
        blocks.push(Block::Verdict(
            tr!("kernel").to_owned(),
            Text::toned(self.verdict(), tone),
            tr!(", {cases} cases: {counts}", cases, counts),
        ));
        blocks.extend(self.lines().into_iter().map(Block::text));
        blocks
    }

    /// The sentences: the mistake, where it shows, what was said, and what nothing stated.
    fn lines(&self) -> Vec<String> {
        let mut lines = self.of_mistakes();
        let Common { exactly, always } = &self.common;
        if let [first, others @ ..] = &exactly[..] {
            lines.push(tr!("it fails exactly where {fact}", fact = first));
            lines.extend(
                others.iter().map(|fact| tr!("  and so, in these cases, where {fact}", fact)),
            );
        }
        for (fact, others) in always {
            lines.push(match others {
                0 => tr!("in all failing cases {fact}", fact),
                _ => tr!(
                    "in all failing cases {fact}; so it is in {others} cases that are the same",
                    fact,
                    others
                ),
            });
        }
        for state in State::ALL
            .iter()
            .filter(|state| !matches!(state, State::Same | State::Differs | State::Unchecked))
        {
            lines.extend(self.of_state(*state));
        }
        lines.extend(self.of_precision());
        lines.extend(self.notes());
        lines
    }

    /// The cases in f32 that were computed in fewer bits.
    fn of_precision(&self) -> Option<String> {
        let lower = self.sweep.judged.iter().filter(|one| one.case.kind == Kind::F32);
        let lower: Vec<&Judged> = lower.filter(|one| one.precision().is_some()).collect();
        let summary = lower.first()?.precision()?;
        Some(quoted(&tr!("precision: {summary}, in {names}", summary, names = named(&lower))))
    }

    fn of_mistakes(&self) -> Vec<String> {
        let wrong = self.sweep.judged.iter().filter(|one| one.is_wrong()).count();
        let mut lines = Vec::new();
        for found in self.mistakes.iter().take(NAMED) {
            let Explained { id, summary, cases, .. } = found;
            let name = if found.is_known {
                tr!("known mistake {id}: {summary}", id, summary)
            } else {
                format!("{id}: {summary}")
            };
            let count = cases.len();
            let explained = match count {
                _ if count == wrong => tr!("it explains every failing case").to_owned(),
                _ => tr!("it explains {count} of {wrong} failing cases", count, wrong),
            };
            lines.push(quoted(&format!("{name}; {explained}")));
        }
        let open: Vec<&Judged> = self
            .sweep
            .judged
            .iter()
            .filter(|one| one.state == State::Differs && one.findings().next().is_none())
            .collect();
        if let Some(first) = open.first() {
            let names = named(&open);
            lines.push(tr!("no known mistake explains {names}", names));
            let clues = first.report.iter().filter_map(|report| report.diagnosis.as_ref());
            let clues = clues.flat_map(|diagnosis| &diagnosis.clues).take(2);
            let name = first.case.name();
            let start = first.report.as_ref().and_then(|report| report.non_finite.as_ref());
            lines.extend(start.map(|found| {
                let (step, index) = (&found.place.step, format!("{:?}", found.place.index));
                quoted(&tr!(
                    "  {name}: the first number that is not finite is {step}{index}",
                    name,
                    step,
                    index
                ))
            }));
            lines.extend(
                clues.map(|clue| quoted(&format!("  {name}: {}: {}", clue.step, clue.summary))),
            );
        }
        lines
    }

    /// What was said in a state, the cases in which the same was said together.
    fn of_state(&self, state: State) -> Vec<String> {
        let mut said: Vec<(&str, Vec<&Judged>)> = Vec::new();
        for one in self.sweep.judged.iter().filter(|one| one.state == state) {
            match said.iter_mut().find(|(text, _)| *text == one.said) {
                Some((_, cases)) => cases.push(one),
                None => said.push((&one.said, vec![one])),
            }
        }
        let rest = said.len().saturating_sub(NAMED);
        let state = state.told();
        let mut lines: Vec<String> = said
            .iter()
            .take(NAMED)
            .map(|(text, cases)| {
                let names = named(cases);
                quoted(&tr!("{state} in {names}: {text}", state, names, text = shown(text)))
            })
            .collect();
        if rest > 0 {
            lines.push(tr!("{state} in other words {rest} times more", state, rest));
        }
        lines
    }

    /// What nothing stated, and how the kernel has it.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let align = self.sweep.settled.causal_align;
        match align.filter(|_| self.base.causal_align.is_none()) {
            Some(CausalAlign::TopLeft) => notes.push(tr!("with fewer queries than keys its causal mask is aligned top-left, as in scaled_dot_product_attention: the last query does not see the last key; `causal_align=bottom-right` holds it to what decoding with a cache needs").to_owned()),
            Some(CausalAlign::BottomRight) => notes.push(tr!("with fewer queries than keys its causal mask is aligned bottom-right: the last query sees the last key; `causal_align=bottom-right` holds it to that").to_owned()),
            None => {}
        }
        let empty = self.sweep.settled.empty_rows;
        match empty.filter(|_| self.base.empty_rows.is_none()) {
            Some(EmptyRow::Zero) => notes.push(
                tr!("rows without a key are zeros; `empty_rows=zero` holds it to that").to_owned(),
            ),
            Some(EmptyRow::Nan) => notes.push(
                tr!("rows without a key are NaN; `empty_rows=nan` holds it to that").to_owned(),
            ),
            None => {}
        }
        if self.sweep.settled.mask_fill.is_some() {
            notes.push(tr!("rows without a key give all keys the same weight, as a finite fill does; `empty_rows=zero` holds it to zeros").to_owned());
        }
        let left = self.count(State::Unchecked);
        if left > 0 {
            notes.push(tr!(
                "{left} cases were not checked, as the others took too long; --only picks them",
                left
            ));
        }
        notes
    }

    /// The same for programs; `text` is the page.
    pub fn json(&self, text: &str) -> Value {
        let cases: Vec<Value> = self
            .sweep
            .judged
            .iter()
            .map(|one| {
                let mut value = case_json(one.case);
                value["state"] = json!(one.state);
                value["first_divergence"] = json!(one.first());
                value["said"] = json!(one.said);
                value["report"] = json!(one.report);
                value
            })
            .collect();
        let name = |at: &usize| self.sweep.judged.get(*at).map(|one| one.case.name());
        let mistakes: Vec<Value> = self
            .mistakes
            .iter()
            .map(|found| {
                json!({
                    "id": found.id,
                    "is_known": found.is_known,
                    "summary": found.summary,
                    "cases": found.cases.iter().filter_map(name).collect::<Vec<_>>(),
                })
            })
            .collect();
        let always = self.common.always.iter();
        let always = always.map(|(fact, others)| json!({ "fact": fact, "others": others }));
        json!({
            "format": "mha-trace-sweep",
            "version": 1,
            "verdict": self.verdict(),
            "mistakes": mistakes,
            "fails_exactly_where": self.common.exactly,
            "fails_always_where": always.collect::<Vec<_>>(),
            "notes": self.notes(),
            "text": text,
            "cases": cases,
        })
    }
}

/// The cases of a sweep, before it is run.
pub fn list_page(cases: &[Case]) -> Vec<Block> {
    let all: Vec<(&Case, Text)> = cases.iter().map(|case| (case, Text::from("·"))).collect();
    vec![Block::Table(table(&all))]
}

/// The same for programs.
pub fn list_json(cases: &[Case]) -> Value {
    let cases: Vec<Value> = cases.iter().map(case_json).collect();
    json!({ "format": "mha-trace-sweep", "version": 1, "cases": cases })
}

fn case_json(case: &Case) -> Value {
    let [batch, heads, kv_heads, queries, keys, head_dim] = case.sizes();
    json!({
        "name": case.name(),
        "row": case.row,
        "dtype": case.kind,
        "batch": batch,
        "heads": heads,
        "kv_heads": kv_heads,
        "queries": queries,
        "keys": keys,
        "head_dim": head_dim,
        "numbers": case.numbers,
        "takes": case.takes,
        "causal": case.is_causal(),
    })
}

/// The cases, a row each for all types.
fn table(cells: &[(&Case, Text)]) -> Table {
    let kinds = Kind::ALL.iter().filter(|kind| cells.iter().any(|(case, _)| case.kind == **kind));
    let kinds: Vec<Kind> = kinds.copied().collect();
    let header = [
        tr!("case"),
        tr!("batch"),
        tr!("heads"),
        tr!("queries"),
        tr!("keys"),
        tr!("head_dim"),
        tr!("numbers"),
    ];
    let header = header.iter().map(|name| (*name).to_owned());
    let header = header.chain(kinds.iter().map(ToString::to_string)).collect();
    let rows = cells.chunk_by(|(one, _), (other, _)| one.row == other.row).filter_map(|same| {
        let (case, _) = same.first()?;
        let [batch, heads, kv_heads, queries, keys, head_dim] = case.sizes();
        let heads =
            if heads == kv_heads { heads.to_string() } else { format!("{heads}/{kv_heads}") };
        let sizes =
            [batch.to_string(), heads, queries.to_string(), keys.to_string(), head_dim.to_string()];
        let mut row = vec![Text::from(case.row.clone())];
        row.extend(sizes.map(Text::number));
        row.push(case.numbers.told().into());
        row.extend(kinds.iter().map(|kind| {
            let own = same.iter().find(|(case, _)| case.kind == *kind);
            own.map_or_else(Text::default, |(_, text)| text.clone())
        }));
        Some(row)
    });
    Table { header, rows: rows.collect(), wraps: 0, is_inner: false }
}

/// The names of cases, the first of them where there are many.
fn named(cases: &[&Judged]) -> String {
    let names: Vec<String> = cases.iter().take(NAMED).map(|one| one.case.name()).collect();
    let (names, more) = (lang::list(&names), cases.len().saturating_sub(NAMED));
    if more == 0 { names } else { tr!("{names} and {more} more", names, more) }
}
