//! What a diagnosis says, in sentences.

use std::time::Duration;

use super::label::cell;
use base::lang;
use check::{ALLOWED, Cause, Diagnosis, Finding, NonFinite, Pairs, Place};
use config::Labels;
use file::dtype_name;
use program::Name;

/// How many mistakes with the same numbers are told beside the first; all of them are in JSON.
const MOST_OTHERS: usize = 4;

/// What gives the numbers, and what does not, a line each.
pub fn diagnosis_lines(diagnosis: &Diagnosis) -> Vec<String> {
    let mut lines: Vec<String> = diagnosis.findings.iter().map(finding).collect();
    match diagnosis.pairs {
        Pairs::Tried { unlisted: 1 } => lines.push(tr!("1 more pair fits").to_owned()),
        Pairs::Tried { unlisted: more @ 2.. } => lines.push(tr!("{more} more pairs fit", more)),
        _ => {}
    }
    let tried_pairs = matches!(diagnosis.pairs, Pairs::Tried { .. });
    match (diagnosis.unexplained.as_slice(), diagnosis.findings.as_slice()) {
        ([], _) => {}
        (_, []) if tried_pairs => {
            lines.push(tr!("no known mistake gives these numbers, nor do two together").to_owned());
        }
        (_, []) => lines.push(tr!("no known mistake gives these numbers").to_owned()),
        (steps, _) => {
            let steps: Vec<&str> = steps.iter().map(|step| step.as_str()).collect();
            lines.push(tr!("no known mistake gives {steps}", steps = lang::list(&steps)));
        }
    }
    let clues = diagnosis.clues.iter().map(|clue| format!("{}: {}", clue.step, clue.summary));
    lines.extend(clues);
    if let Pairs::TooLong(estimate) = diagnosis.pairs {
        let estimate = duration(estimate);
        lines.push(tr!("not all mistakes were tried, nor two together: on runs of this size that takes about {estimate} more", estimate));
    }
    if diagnosis.left_out && !diagnosis.unexplained.is_empty() {
        lines.push(
            tr!("the run is large, so rare mistakes that do not show in a few rows were not tried")
                .to_owned(),
        );
    }
    lines
}

fn finding(found: &Finding) -> String {
    let Finding { id, step, summary, with, factor, .. } = found;
    let also: String = found.also.iter().take(MOST_OTHERS).map(alternative).collect();
    match (with, factor) {
        (Some(other), _) => {
            let Finding { id: other_id, step: other_step, summary: other_summary, .. } = &**other;
            tr!(
                "known mistakes {id}, at {step}, and {other_id}, at {other_step}, together: {summary}; {other_summary}",
                id,
                step,
                other_id,
                other_step,
                summary,
                other_summary
            )
        }
        (None, Some(factor)) => tr!(
            "{id}: {summary}; at most {factor} times this run's own rounding, at {step} ({ALLOWED} times is the limit)",
            id,
            summary,
            factor = format!("{factor:.1}"),
            step,
            ALLOWED
        ),
        (None, None) if found.kind.is_none() => format!("{id}: {summary}"),
        (None, None) if found.is_known() => {
            tr!("known mistake {id}, at {step}: {summary}{also}", id, step, summary, also)
        }
        (None, None) => tr!("{id}, at {summary}{also}", id, summary, also),
    }
}

/// Another mistake with the same numbers, on a line of its own.
fn alternative(found: &Finding) -> String {
    let Finding { id, summary, .. } = found;
    if found.is_known() {
        tr!("\n  or, with the same numbers here, {id}: {summary}", id, summary)
    } else {
        tr!("\n  or, with the same numbers here: {summary}", summary)
    }
}

/// About how long: `90 seconds`, `15 minutes`, `3 hours`.
fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => tr!("{seconds} seconds", seconds),
        seconds @ 120..7200 => tr!("{seconds} minutes", seconds = seconds / 60),
        seconds => tr!("{seconds} hours", seconds = seconds / 3600),
    }
}

/// Where NaN or an infinity starts, and why.
pub fn start_of_non_finite(found: &NonFinite, labels: Option<&Labels>) -> String {
    let what = if found.value.is_nan() { "NaN" } else { "infinity" };
    let origin = match &found.origin {
        Some(origin) => tr!("; recomputed, it comes from {origin}", origin = place(origin, labels)),
        None => String::new(),
    };
    let cause = match found.cause {
        Cause::Given => tr!("the input already has it").to_owned(),
        Cause::FullyMasked => tr!("every key of that query is masked").to_owned(),
        Cause::NoMaximum => tr!(
            "the exponential of a split's log-sum-exp is beyond the largest number of f32 there: the merge subtracts no maximum"
        )
        .to_owned(),
        Cause::Undecayed => tr!(
            "the decay within a chunk adds up to so little that exp(−G) is beyond the largest number of f32: exp(G − G′) is computed as exp(G) · exp(−G′)"
        )
        .to_owned(),
        Cause::OtherRows => tr!(
            "it is a sum over the queries, and the gradient of these is finite: rows that are no queries are in it, as tiles have them behind the last one"
        )
        .to_owned(),
        Cause::EmptyPart => tr!(
            "a split or tile has no visible key there: it is empty, or all masked, and −∞ − −∞ or 0 / 0 is NaN"
        )
        .to_owned(),
        Cause::Tail => tr!(
            "the last tile or split is not full, and what stands behind the last key there is NaN: values that were never loaded, or not cleared, as 0 · NaN is NaN"
        )
        .to_owned(),
        Cause::Overflow(dtype) => {
            tr!("overflow, a number beyond the largest {dtype}", dtype = dtype_name(dtype))
        }
        Cause::FromInfinity => tr!("∞ − ∞ or 0 · ∞").to_owned(),
        Cause::Inherited => {
            tr!("the numbers that the step reads have it, and the step should remove it").to_owned()
        }
        Cause::Unknown => {
            tr!("the cause is not known: the recorded numbers give a finite result").to_owned()
        }
    };
    tr!(
        "first {what}: {place}{origin}: {cause}",
        what,
        place = place(&found.place, labels),
        origin,
        cause
    )
}

fn place(place: &Place, labels: Option<&Labels>) -> String {
    match &place.axes {
        Some(axes) => {
            let step = Name::in_files(&place.step);
            tr!(
                "{step} at {index}",
                step = place.step,
                index = cell(labels, step, axes, &place.index)
            )
        }
        None => tr!("{step} at {index}", step = place.step, index = format!("{:?}", place.index)),
    }
}
