//! The comparison of two recordings of a whole model, for people.

use super::number::magnitude;
use super::page::{Block, Table, Text, Tone};
use super::report::{Sides, Tables, report_page, tone};
use base::error::shown;
use check::{ByLayer, How, Line, Open};
use foreign::ModelPart;

/// How many tensors of other names are told.
const MOST_MATCHES: usize = 3;
/// So many names of tensors that are compared with none are told.
const MOST_NAMES: usize = 4;

/// The page: the verdict, a table of the layers, the first wrong part, and what is wrong with it. `rows` says whether the table is
/// shown.
#[must_use]
pub fn by_layer_page(found: &ByLayer, sides: Sides, rows: Tables) -> Vec<Block> {
    let (word, told) = (found.verdict().name(), found.verdict().told());
    let tone = tone(found.verdict());
    let translated = if told == word { String::new() } else { tr!(" ({told})", told) };
    let parts = found.compared();
    let title = format!("{} · {}", shown(&found.left), shown(&found.right));
    let compared = tr!("{translated}, {parts} parts compared", translated, parts);
    let mut blocks = vec![Block::Verdict(title, Text::toned(word, tone), compared)];
    blocks.extend(
        found.warning.iter().map(|warning| Block::text(tr!("warning: {warning}", warning))),
    );
    blocks.extend(facts(found).into_iter().map(Block::Fact));
    if rows != Tables::Hidden {
        blocks.push(Block::Table(table(found)));
    }
    blocks.push(Block::text(verdict(found)));
    blocks.extend(others(found).into_iter().chain(open(found)).map(Block::text));
    if let Some(named) = &found.named {
        blocks.push(Block::text(named.what.clone()));
        blocks.extend(named.facts.iter().map(|fact| Block::Text(1, fact.clone())));
        blocks.extend(
            named.report.iter().flat_map(|report| report_page(report, sides, Tables::Hidden)),
        );
    }
    blocks
}

fn facts(found: &ByLayer) -> Vec<String> {
    let mut facts: Vec<String> = found.ranks.iter().chain(&found.aligned).cloned().collect();
    let shown_matches = found.matches.iter().take(MOST_MATCHES);
    facts.extend(shown_matches.map(|(left, right)| {
        tr!(
            "{left} beside {right}, by name, place and width",
            left = shown(left),
            right = shown(right)
        )
    }));
    if let Some(more) = found.matches.len().checked_sub(MOST_MATCHES).filter(|more| *more > 0) {
        facts.push(tr!("{more} more tensors are matched so", more));
    }
    facts.extend(found.undone.as_ref().map(|name| {
        tr!("{name} differs, and what is behind it does not: the port does the same in another way, or has no such part", name = shown(name))
    }));
    facts.extend(listed(&found.left_over.left).map(|(count, names)| {
        tr!(
            "{count} tensors of the reference are not compared, as the port has none beside them: {names}",
            count,
            names
        )
    }));
    facts.extend(listed(&found.left_over.right).map(|(count, names)| {
        tr!(
            "{count} tensors of the port are not compared, as the reference has none beside them: {names}",
            count,
            names
        )
    }));
    facts
}

/// How many names there are, if any, and the first of them.
fn listed(names: &[String]) -> Option<(usize, String)> {
    let shown_names: Vec<_> = names.iter().take(MOST_NAMES).map(|name| shown(name)).collect();
    let (count, names) = (names.len(), shown_names.join(", "));
    let told = match count.checked_sub(MOST_NAMES) {
        Some(more) if more > 0 => tr!("{names} and {more} more", names, more),
        _ => names,
    };
    (count > 0).then_some((count, told))
}

/// A stretch of parts: a layer, or what stands before or behind the layers.
pub struct Stretch<'a> {
    /// The number of the layer, or where the stretch stands.
    pub name: String,
    pub lines: &'a [Line],
    /// Whether the first wrong part is among them.
    pub is_first: bool,
}

/// The stretches of a model, in order of execution.
pub fn stretches(found: &ByLayer) -> impl Iterator<Item = Stretch<'_>> {
    let first = found.first.and_then(|at| found.lines.get(at));
    let stretches = found.lines.chunk_by(|left, right| left.layer == right.layer);
    stretches.enumerate().map(move |(at, lines)| Stretch {
        name: match lines.first().and_then(|line| line.layer) {
            Some(layer) => layer.to_string(),
            None if at == 0 => tr!("before").to_owned(),
            None => tr!("behind").to_owned(),
        },
        lines,
        is_first: first.is_some_and(|first| lines.contains(first)),
    })
}

fn table(found: &ByLayer) -> Table {
    let header = [
        tr!("layer"),
        tr!("error before it"),
        tr!("adds by itself"),
        tr!("error behind it"),
        tr!("most by"),
        tr!("known by"),
    ];
    let row = |Stretch { name, lines, is_first }: Stretch| {
        let seen: Vec<&Line> = lines.iter().filter(|line| line.error.is_some()).collect();
        let tone = if is_first { Tone::Bad } else { Tone::Plain };
        let mut row = vec![Text::toned(name, tone)];
        let number = |number: Option<f64>| Text::number(number.map_or(String::new(), magnitude));
        let most = seen.iter().copied().max_by(|left, right| {
            let own = |line: &Line| line.own.unwrap_or(0.0);
            let wrong = |line: &Line| (line.is_wrong, own(line));
            wrong(left).0.cmp(&wrong(right).0).then(own(left).total_cmp(&own(right)))
        });
        row.push(number(seen.first().and_then(|line| line.inherited)));
        let is_rounding =
            |line: &&Line| !line.is_wrong && line.own.is_some_and(|own| own <= line.tolerance);
        row.push(match most.filter(is_rounding).and_then(|line| line.own) {
            Some(own) if own > 0.0 => Text { tone: Tone::Faint, ..Text::number(tr!("rounding")) },
            _ => number(most.and_then(|line| line.own)),
        });
        row.push(number(seen.last().and_then(|line| line.error)));
        if let Some(line) = most.filter(|line| !is_rounding(line)) {
            let name = name_of(line);
            let word = if line.is_wrong { tr!("{part}, wrong", part = name) } else { name };
            row.push(Text::toned(word, if line.is_wrong { Tone::Bad } else { Tone::Plain }));
            row.push(Text { is_spare: true, ..line.how.told().into() });
        }
        row
    };
    let rows = stretches(found).map(row).collect();
    Table {
        header: header.map(str::to_owned).to_vec(),
        rows,
        wraps: header.len() - 1,
        is_inner: true,
    }
}

/// What a part is called: its module, and of what went into one, that.
pub fn name_of(line: &Line) -> String {
    let inner = line.path.rsplit(['.', '/']).next().unwrap_or(&line.path);
    match line.part {
        ModelPart::Between => tr!("into {inner}", inner = shown(inner)),
        ModelPart::Layer => tr!("the sum behind it").to_owned(),
        _ => shown(inner).into_owned(),
    }
}

/// The first wrong part in a sentence.
fn verdict(found: &ByLayer) -> String {
    if found.compared() == 0 {
        return tr!(
            "nothing was compared: no tensor of the port has rows beside one of the reference"
        )
        .to_owned();
    }
    let Some(line) = found.first.and_then(|at| found.lines.get(at)) else {
        let most = found.lines.iter().filter_map(|line| line.error).fold(0.0, f64::max);
        return match most {
            _ if !found.reaches_the_end() && found.warning.is_none() => tr!(
                "nothing of the last layers was compared: no tensor of the port stands beside one of theirs"
            )
            .to_owned(),
            _ if let Some([meant, own]) = &found.left_over.end => tr!(
                "the logits were not compared: {own} of the port does not stand beside {meant} of the reference",
                meant = shown(meant),
                own = shown(own)
            ),
            0.0 => tr!("all parts are equal, bit for bit").to_owned(),
            _ if found.undone.is_some() => {
                tr!("no part is wrong by itself: where one differs, what is behind it agrees")
                    .to_owned()
            }
            _ if found.warning.is_some() => tr!("no part is wrong by itself").to_owned(),
            _ if !found.is_same() => {
                tr!("no part is known to be wrong by itself, and not all could be judged")
                    .to_owned()
            }
            _ => tr!(
                "no part is wrong by itself: what differs is rounding, at most {most} of a row's size",
                most = magnitude(most)
            ),
        };
    };
    let (name, part) = (shown(&line.name), line.part.told());
    let own = magnitude(line.own.unwrap_or(0.0));
    // A module of no kind is called what the model calls it.
    let inner = name_of(line);
    let part = if line.part == ModelPart::Other { inner.as_str() } else { part };
    let is_whole = is_whole_layer(found, line);
    let place = match line.layer {
        Some(layer) if is_whole => tr!("layer {layer}, of which nothing else was recorded,", layer),
        Some(layer) => tr!("the {part} of layer {layer}", part, layer),
        None => tr!("the {part}", part),
    };
    let (inherited, error) =
        (magnitude(line.inherited.unwrap_or(0.0)), magnitude(line.error.unwrap_or(0.0)));
    let reads_equal = line.inherited.is_some_and(|inherited| inherited <= line.tolerance);
    let between = passed_over(found, line);
    let first = match line.how {
        How::Inferred if reads_equal && !between.is_empty() => tr!(
            "{place} is the first that differs ({name}): what was recorded before it is off by {inherited}, what it gives by {error}; what stands between was not recorded, and may be wrong: {between}",
            place,
            name,
            inherited,
            error,
            between = listed(&between).map_or(String::new(), |(_, names)| names)
        ),
        How::Inferred if reads_equal => tr!(
            "{place} is the first that differs ({name}): what was recorded before it is off by {inherited}, what it gives by {error}; that its inputs are equal is inferred",
            place,
            name,
            inherited,
            error
        ),
        How::Inferred => tr!(
            "{place} is the first that makes more of the error before it than its kind does ({name}): {error} of {inherited}; that is inferred",
            place,
            name,
            error,
            inherited
        ),
        How::Recomputed if !reads_equal => tr!(
            "{place} is the first that is wrong by itself ({name}): for the port's own inputs it is off by {own}",
            place,
            name,
            own
        ),
        How::EqualInputs | How::Recomputed if line.inherited == Some(0.0) => tr!(
            "{place} is the first that differs with equal inputs ({name}): it is off by {error}",
            place,
            name,
            error
        ),
        How::EqualInputs | How::Recomputed => tr!(
            "{place} is the first that differs with equal inputs ({name}): what it reads is off by {inherited}, what it gives by {error}",
            place,
            name,
            inherited,
            error
        ),
    };
    let is_inner = ["attn", "attention"].iter().any(|word| line.path.contains(word));
    let is_attention =
        line.part == ModelPart::Attention || is_inner && line.part != ModelPart::Norm;
    if is_attention || is_whole || !between.is_empty() {
        first
    } else {
        tr!("not attention: {first}", first)
    }
}

/// The modules of its layer that stand between the first wrong part and what was compared before it, if attention is among them.
fn passed_over(found: &ByLayer, line: &Line) -> Vec<String> {
    let before = found.lines.get(..found.first.unwrap_or(0)).unwrap_or_default();
    let start = before.iter().rposition(|own| own.error.is_some()).map_or(0, |at| at + 1);
    let between = before.iter().skip(start).filter(|own| own.layer == line.layer);
    let between: Vec<&Line> = between.filter(|own| own.part != ModelPart::Between).collect();
    let has_attention = between.iter().any(|own| own.part == ModelPart::Attention);
    between.iter().filter(|_| has_attention).map(|own| own.name.clone()).collect()
}

/// Whether what a layer gives in the end is all of it that was compared.
fn is_whole_layer(found: &ByLayer, line: &Line) -> bool {
    let of_layer = found.lines.iter().filter(|own| own.layer == line.layer);
    line.part == ModelPart::Layer && of_layer.filter(|own| own.error.is_some()).count() == 1
}

/// The other parts that are wrong by themselves.
fn others(found: &ByLayer) -> Option<String> {
    let behind = found.first.map_or(found.lines.len(), |at| at + 1);
    let wrong: Vec<&Line> = found.lines.iter().skip(behind).filter(|line| line.is_wrong).collect();
    let (first, count) = (wrong.first()?, wrong.len());
    let name = shown(&first.name);
    Some(match count {
        1 => tr!("also wrong by itself: {name}", name),
        _ => tr!("{count} later parts are wrong by themselves, too: {name} first", count, name),
    })
}

/// What could not be judged, or by how errors grow alone.
fn open(found: &ByLayer) -> Vec<String> {
    let lines = || found.lines.iter();
    let mut open: Vec<String> = lines()
        .filter_map(|line| Some((shown(&line.name), line.open?)))
        .map(|(name, open)| match open {
            Open::Experts => tr!("{name} chooses experts, and rounding may choose others: its rows that are off were not judged", name),
            Open::Unknown => tr!("{name} is off, and was not judged: what it reads differs, and nothing recorded says what it should make of that", name),
        })
        .collect();
    let is_inferred = |line: &&Line| {
        line.how == How::Inferred && line.own.is_some_and(|own| own > line.tolerance)
    };
    let count = lines().filter(is_inferred).count();
    if count > 0 && found.first.is_none() {
        open.push(tr!(
            "{count} parts could not be recomputed, and were judged by how errors grow",
            count
        ));
    }
    open
}
