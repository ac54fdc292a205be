//! Reports of `check` and `diff`, for people.

use super::diagnosis::{diagnosis_lines, start_of_non_finite};
use super::header::{mask_line, second};
use super::label;
use super::number::{magnitude, pair};
use super::page::{Block, Table, Text, Tone};
use base::error::{quoted, shown};
use base::lang;
use check::{
    ALLOWED_FACTOR, Contradiction, FitsKeys, FlashError, Report, Status, StepReport, Verdict,
};
use config::{Config, DType, Queries, Start};
use foreign::Unmatched;

/// What the two sides of a comparison are called.
pub type Sides<'a> = (&'a str, &'a str);

/// Whether a report shows the table of its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tables {
    /// It does.
    Shown,
    /// It does where something differs.
    OfDifferences,
    /// It does not.
    Hidden,
}

/// A report: its verdict, the table of the steps, the verdict in a sentence, what gives these numbers, and the
/// cell where the sides first part.
#[must_use]
pub fn report_page(report: &Report, sides: Sides, tables: Tables) -> Vec<Block> {
    let compared = match report.compared() {
        1 => tr!("1 step compared").to_owned(),
        compared => tr!("{compared} steps compared", compared),
    };
    let verdict = report.verdict();
    let (name, told) = (verdict.name(), verdict.told());
    let translated = if told == name { String::new() } else { tr!(" ({told})", told) };
    let mut blocks = vec![Block::Verdict(
        shown(&report.path).into_owned(),
        Text::toned(verdict.name(), tone(verdict)),
        tr!("{translated}, {compared}", translated, compared),
    )];
    let against: Vec<Block> = report
        .contradictions
        .iter()
        .map(|found| {
            let Contradiction { id, step, summary, .. } = found;
            Block::text(if *id == Contradiction::KIND {
                tr!("contradiction: {summary}", summary)
            } else {
                tr!("known mistake {id}, at {step}: {summary}{also}", id, step, summary, also = "")
            })
        })
        .collect();
    // What one of two files contradicts stands with its mistakes.
    let (above, beside) = match report.diagnosed {
        Some(_) => (Vec::new(), against),
        None => (against, Vec::new()),
    };
    blocks.extend(above);
    blocks.extend(facts(report).into_iter().map(Block::Fact));
    if tables == Tables::Shown || (tables == Tables::OfDifferences && !report.is_same()) {
        blocks.push(Block::Table(table(report, sides)));
    }
    if verdict == Verdict::Unchecked {
        let note = tr!(
            "the forward pass is the same, but the gradients were not checked; `ignore_gradients` says that they do not matter"
        );
        blocks.push(Block::text(note));
    }
    let first = report.first_divergence();
    blocks.extend(first.map(|first| Block::text(quoted(&divergence(report, first)))));
    blocks.extend(missing(report).into_iter().map(Block::text));
    if let Some(padded) = report.padded_rows.as_ref().filter(|padded| !padded.left_out) {
        let rows = &padded.rows;
        let note = tr!("all that differs is in the rows of padded queries ({rows})", rows);
        blocks.push(Block::text(tr!("{note}; `ignore_padding` leaves them out", note)));
    }
    let side = report.diagnosed.as_ref();
    let side =
        side.map(|file| tr!("by its own numbers {file} has a mistake:", file = quoted(file)));
    blocks.extend(side.map(Block::text));
    blocks.extend(beside);
    let found = report.diagnosis.iter().flat_map(diagnosis_lines);
    blocks.extend(found.map(Block::text));
    blocks.extend(readings_that_fit(report).into_iter().map(Block::text));
    blocks.extend(report.flash.iter().flatten().map(|found| Block::text(flash_line(found))));
    if report.flash.as_ref().is_some_and(Vec::is_empty) {
        blocks.push(Block::text(tr!("flash tolerance: no output here is in bf16 or f16")));
    }
    let labels = report.labels.as_ref();
    let start = report.non_finite.as_ref().map(|found| start_of_non_finite(found, labels));
    blocks.extend(start.map(|start| Block::text(quoted(&start))));
    blocks.extend(first.map(|first| Block::text(quoted(&worst_cell(report, first, sides)))));
    blocks
}

/// How the file was read.
fn facts(report: &Report) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(config) = &report.read_as {
        let mask = report
            .mask_read
            .as_ref()
            .map_or_else(|| mask_line(config), |_| tr!("the file's mask").to_owned());
        facts.push(tr!("read as {heads} · {mask}", heads = heads(config), mask));
    }
    if let Some(mask) = &report.mask_read {
        let note = tr!(
            "nothing says whether that is the one that was meant; `mask` and `lengths` state it"
        );
        facts.push(tr!("the file's mask is {mask}; {note}", mask, note));
    }
    for matched in report.matches.iter().filter(|matched| matched.chosen) {
        facts.push(quoted(&matched.to_string()));
    }
    facts.extend(not_checked(&report.unmatched));
    if let Some(padded) = &report.padded_rows
        && padded.left_out
    {
        facts.push(tr!("padded queries are left out: {rows}", rows = padded.rows));
    }
    facts
}

/// What else the file would be the same as, if that was meant.
fn readings_that_fit(report: &Report) -> Vec<String> {
    let mut fits = Vec::new();
    if report.fits_unmasked {
        let note = tr!(
            "with `mask=none` it is the same: no mask was asked for, and causal is the default"
        );
        fits.push(note.to_owned());
    }
    if report.fits_causal {
        let note = tr!(
            "with `mask=causal` it is the same: no mask was asked for, and there is none where a run starts at q, k and v"
        );
        fits.push(note.to_owned());
    }
    if report.fits_single_tokens {
        fits.extend(report.read_as.as_ref().map(|config| {
            let (items, heads) = (config.sizes.batch, config.sizes.heads);
            match config.start {
                _ if !report.is_same() => tr!(
                    "with `seq_len=1` it is the same: X then is items of one token each, to which attention does nothing"
                )
                .to_owned(),
                Start::Inputs => tr!(
                    "X is read as {items} items of one token each, to which attention does nothing; if it is the {items} tokens of one item, pass `seq_len={items}`: then it differs",
                    items
                ),
                _ => tr!(
                    "q, k and v are read as {heads} heads of one token, to which attention does nothing; if they are {heads} tokens of one head, pass `heads=1`: then they differ",
                    heads
                ),
            }
        }));
    }
    if let Some(FitsKeys { setting, is_same, .. }) = &report.fits_keys {
        let all =
            if *is_same { tr!("it is") } else { tr!("all but the rows of padded queries is") };
        let note = tr!(
            "with `{setting}` {all} the same: no query gives any weight to the other keys",
            setting,
            all
        );
        fits.push(note);
    }
    if let Some(layer) = &report.fits_layer {
        let layer = quoted(layer);
        fits.push(tr!("another layer gives these numbers: `prefix={layer}`", layer));
    }
    fits
}

/// The tensors that were left out, those for one reason in one line.
fn not_checked(unmatched: &[Unmatched]) -> Vec<String> {
    let line = |same: &[Unmatched]| {
        let shown = same.get(..NAMED).unwrap_or(same);
        let names: Vec<&str> = shown.iter().map(|tensor| tensor.tensor.as_str()).collect();
        let more = match same.len() - shown.len() {
            0 => String::new(),
            more => tr!(" and {more} more", more),
        };
        let were = if same.len() == 1 { tr!("was") } else { tr!("were") };
        let why = same.first().map_or("", |first| first.why.as_str());
        tr!(
            "{names}{more} {were} not checked: {why}",
            names = quoted(&lang::list(&names)),
            more,
            were,
            why
        )
    };
    unmatched.chunk_by(|one, other| one.why == other.why).map(line).collect()
}

/// How many tensors that were left out for one reason are named.
const NAMED: usize = 4;

/// A step's error as `FlashAttention`'s tests judge it.
fn flash_line(found: &FlashError) -> String {
    let FlashError { step, dtype, .. } = found;
    let verdict = match found.factor() {
        Some(factor) => tr!("{factor} times", factor = format!("{factor:.2}")),
        None => tr!("nothing to compare with").to_owned(),
    };
    tr!(
        "flash tolerance: {step} is off by {own} from f64, and PyTorch in {dtype} by {pytorch}: {verdict} ({ALLOWED_FACTOR} times is the limit)",
        step,
        own = magnitude(found.own),
        dtype,
        pytorch = magnitude(found.pytorch),
        verdict,
        ALLOWED_FACTOR
    )
}

/// The steps that one side alone has, and what brings such steps.
fn missing(report: &Report) -> Vec<String> {
    let missing: Vec<&StepReport> = report.missing().collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = missing.iter().map(|step| step.name.as_str()).collect();
    let mut lines = vec![tr!("on one side only: {names}", names = quoted(&lang::list(&names)))];
    let brought = missing.iter().filter_map(|step| Some(lang::text(step.step?.row().brought_by)));
    let mut hints: Vec<&str> = brought.filter(|setting| !setting.is_empty()).collect();
    hints.dedup();
    if report.read_as.is_some() && !hints.is_empty() {
        lines.push(tr!(
            "what makes such steps is said by flags: {hints}",
            hints = lang::list(&hints)
        ));
    }
    lines
}

fn heads(config: &Config) -> String {
    let c = &config.sizes;
    let start = match config.start {
        Start::Inputs => None,
        Start::Projections => Some(tr!("starting at projected q, k and v")),
        Start::Heads => Some(tr!("starting at the heads' q, k and v")),
        Start::Scores => Some(tr!("starting at the scores")),
    };
    let mut parts: Vec<String> = start.into_iter().map(str::to_owned).collect();
    parts.push(match c.heads {
        1 => tr!("1 head").to_owned(),
        heads => tr!("{heads} heads", heads),
    });
    if c.kv_heads < c.heads {
        parts.push(tr!("kv_heads {kv_heads}", kv_heads = c.kv_heads));
    }
    parts.extend(c.is_cross.then(|| format!("{} {}", second(config), c.own_keys)));
    if c.past_len > 0 {
        parts.push(tr!("cache {past_len}", past_len = c.past_len));
    }
    parts.extend(c.queries.map(|rows| tr!("queries {rows}", rows = Queries::from(rows))));
    parts.extend((config.dtype != DType::default()).then(|| config.dtype.to_string()));
    parts.join(" · ")
}

pub(super) fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Same => Tone::Good,
        Verdict::Differs => Tone::Bad,
        Verdict::Unchecked => Tone::Inherited,
    }
}

/// The word for a status, in its tone.
fn status(status: Status) -> Text {
    let tone = match status {
        Status::Same => Tone::Good,
        Status::Differs | Status::Missing => Tone::Bad,
        Status::Inherited => Tone::Inherited,
    };
    Text::toned(status.told(), tone)
}

fn table(report: &Report, sides: Sides) -> Table {
    let worst = tr!("worst cell: {left}, {right}", left = sides.0, right = sides.1);
    let header = [
        tr!("step"),
        tr!("status"),
        tr!("max abs"),
        tr!("max rel"),
        tr!("mismatched"),
        worst.as_str(),
    ];
    let row = |step: &StepReport| {
        let mut row = vec![Text::from(shown(&step.name).into_owned()), status(step.status)];
        if let Some(found) = &step.comparison {
            row.push(Text::number(magnitude(found.max_abs)));
            row.push(Text::number(magnitude(found.max_rel)));
            row.push(Text::number(tr!(
                "{mismatched} of {count}",
                mismatched = found.mismatched,
                count = found.count
            )));
            if found.max_abs != 0.0 {
                let (left, right) = pair(found);
                let text = tr!("{cell}: {left}, {right}", cell = cell(report, step), left, right);
                row.push(Text { is_spare: step.status == Status::Same, ..text.into() });
            }
        } else if let Some((left, right)) = &step.shapes {
            row.extend(["", "", ""].map(Text::from));
            row.push(
                tr!(
                    "shapes {left}, {right}",
                    left = format!("{left:?}"),
                    right = format!("{right:?}")
                )
                .into(),
            );
        }
        row
    };
    let (rows, wraps) = (report.steps.iter().map(row).collect(), header.len() - 1);
    Table { header: header.map(str::to_owned).to_vec(), rows, wraps, is_inner: true }
}

/// The verdict in a sentence: where the sides first part, and what follows from it.
fn divergence(report: &Report, first: &StepReport) -> String {
    let with = |status: Status| report.steps.iter().filter(move |step| step.status == status);
    let others: Vec<&str> = with(Status::Differs).skip(1).map(|step| step.name.as_str()).collect();
    let others = match others.as_slice() {
        [] => String::new(),
        names => tr!("; also different by themselves: {names}", names = lang::list(names)),
    };
    let inherited = match with(Status::Inherited).count() {
        0 => String::new(),
        1 => tr!("; 1 later step inherits it").to_owned(),
        more => tr!("; {more} later steps inherit it", more),
    };
    tr!("first divergence: {value}{others}{inherited}", value = first.name, others, inherited)
}

/// The worst cell of the step where the sides first part, with both values.
fn worst_cell(report: &Report, first: &StepReport, sides: Sides) -> String {
    let name = &first.name;
    match (&first.comparison, &first.shapes) {
        (Some(found), _) => {
            let (left, right) = pair(found);
            tr!(
                "{name} at {cell}: {first} {left}, {second} {right}",
                name,
                cell = cell(report, first),
                first = sides.0,
                left,
                second = sides.1,
                right
            )
        }
        (None, Some((left, right))) => {
            tr!(
                "{name} has two shapes: {first} {left}, {second} {right}",
                name,
                first = sides.0,
                left = format!("{left:?}"),
                second = sides.1,
                right = format!("{right:?}")
            )
        }
        (None, None) => tr!("{name} is on one side only", name),
    }
}

/// The worst cell by axis name, or by index where the axes are not known.
fn cell(report: &Report, step: &StepReport) -> String {
    let Some(found) = &step.comparison else { return String::new() };
    match &step.axes {
        Some(axes) => label::cell(report.labels.as_ref(), step.step, axes, &found.worst),
        None => format!("{:?}", found.worst),
    }
}
