//! What is asked to be explained: a step, or a cell by numbers, names and labels.

use std::iter;
use std::str::FromStr;

use crate::label::{broadcast_to, token};
use crate::step_called;
use base::error::{Error, Result, near_miss, quoted, shown};
use base::lang;
use config::Labels;
use program::{Axes, Axis, Cell, Program, Step};

/// What is asked to be explained: `scores`, `scores[0,1,2,3]`, `scores[head=1,query=2,key=3]` or
/// `weights[head=0,query=sat,key=cat]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    step: String,
    /// The places of a cell; nothing where the step itself is meant.
    places: Option<Vec<Place>>,
}

/// A place on an axis: a number, or the label of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    axis: Option<String>,
    at: String,
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || tr!("`{text}` is neither a step nor a number of one", text = shown(text));
        // As one index after the other is written in Python.
        let text = with_brackets(&text.trim().replace("][", ","));
        let text = text.as_str();
        let is_name =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        let (step, places) = match text.split_once('[') {
            None => (text, None),
            Some((step, places)) => {
                (step.trim(), Some(places.strip_suffix(']').ok_or_else(wrong)?))
            }
        };
        if !is_name(step) {
            return Err(wrong());
        }
        let place = |text: &str| {
            let (axis, at) = match text.split_once('=') {
                Some((axis, at)) => (Some(axis.trim().to_owned()), at.trim()),
                None => (None, text.trim()),
            };
            (!at.is_empty()).then(|| Place { axis, at: at.to_owned() })
        };
        let places = match places {
            None => None,
            // Of a number alone.
            Some("") => Some(Vec::new()),
            Some(places) => {
                Some(pieces(places).map(place).collect::<Option<_>>().ok_or_else(wrong)?)
            }
        };
        Ok(Self { step: step.to_owned(), places })
    }
}

/// A cell with the brackets that cells have, where it has others, or none at its end.
fn with_brackets(text: &str) -> String {
    let Some((step, places)) = text.split_once(['[', '(', '［', '（', '【']) else {
        return text.to_owned();
    };
    let places = places.trim_end_matches([']', ')', '］', '）', '】']);
    format!("{step}[{places}]")
}

/// The places between the brackets: with commas between them, or full-width ones, or spaces.
fn pieces(places: &str) -> impl Iterator<Item = &str> {
    let apart =
        |by: char| places.contains(by) && places.split(by).all(|place| !place.trim().is_empty());
    let by = [',', '，', '、', ' '].into_iter().find(|by| apart(*by)).unwrap_or(',');
    places.split(by)
}

impl Asked {
    /// The step's name, where no number of it is asked for.
    pub fn name(&self) -> Option<&str> {
        Some(self.step.as_str()).filter(|_| self.places.is_none())
    }

    /// The cell with all axes by name, those at 0 that are not asked for, if axes are named.
    pub fn whole<V>(&self, program: &Program<V>) -> Option<String> {
        let places = self.places.as_ref()?;
        let given = |axis: &str| {
            places.iter().find(|place| place.axis.as_deref() == Some(axis)).map(|place| &place.at)
        };
        let step = self.step(program).ok()?;
        let all =
            step.axes.iter().filter(|(_, size)| *size > 1).map(|(axis, _)| {
                format!("{axis}={}", given(axis.name()).map_or("0", String::as_str))
            });
        let is_named = places.iter().all(|place| place.axis.is_some());
        is_named.then(|| format!("{}[{}]", step.name, all.collect::<Vec<_>>().join(",")))
    }

    /// The step of that name.
    ///
    /// # Errors
    /// If the run has none.
    pub fn step<'a, V>(&self, program: &'a Program<V>) -> Result<&'a Step<V>> {
        step_called(program, &self.step)
    }

    /// The cell, if it is one.
    ///
    /// # Errors
    /// If the run has no such step, or the step no such cell.
    pub fn cell<V>(&self, program: &Program<V>, labels: Option<&Labels>) -> Result<Option<Cell>> {
        let step = self.step(program)?;
        let Some(places) = &self.places else { return Ok(None) };
        let named = places.iter().filter(|place| place.axis.is_some()).count();
        // What stands once for all places of an axis can be asked for at any of them.
        let whole = broadcast_to(program, step).filter(|whole| whole.rank() == step.axes.rank());
        let whole = whole.unwrap_or(&step.axes);
        let index = match named {
            0 => by_position(step, whole, places, labels)?,
            all if all == places.len() => by_name(step, whole, places, labels)?,
            _ => {
                let what = tr!("has some indices with an axis name and some without");
                return Err(Error::tensor(
                    step.name,
                    what,
                    "name the axis of every index, or of none",
                ));
            }
        };
        let own = step.axes.shape().into_iter().zip(index);
        let index = own.map(|(size, at)| if size == 1 { 0 } else { at }).collect();
        Ok(Some(Cell { step: step.name.to_string(), index }))
    }
}

/// The places that are given by numbers or labels, on axes that may be longer than the step's where it is broadcast.
fn by_position<V>(
    step: &Step<V>,
    whole: &Axes,
    places: &[Place],
    labels: Option<&Labels>,
) -> Result<Vec<usize>> {
    let rank = step.axes.rank();
    if places.len() != rank {
        let numbers = if places.len() == 1 {
            tr!("1 index").to_owned()
        } else {
            tr!("{places} indices", places = places.len())
        };
        let what =
            tr!("has {rank} axes, {axes}, but you gave {numbers}", rank, axes = step.axes, numbers);
        // As far as they are given.
        let given = places.iter().map(|place| place.at.parse().unwrap_or(0));
        let index = given.chain(iter::repeat(0)).take(rank).collect();
        let first = Cell { step: step.name.to_string(), index };
        let fix = tr!(
            "give one index per axis, counted from 0, such as {first}; or name the axes, such as {step}",
            first,
            step = by_names(step)
        );
        return Err(Error::tensor(step.name, what, fix));
    }
    let mut index = Vec::new();
    for ((axis, size), place) in whole.iter().zip(places) {
        index.push(number(step, (axis, size), &place.at, &index, labels)?);
    }
    Ok(index)
}

fn by_name<V>(
    step: &Step<V>,
    whole: &Axes,
    places: &[Place],
    labels: Option<&Labels>,
) -> Result<Vec<usize>> {
    let names: Vec<&str> = step.axes.iter().map(|(axis, _)| axis.name()).collect();
    for (at, place) in places.iter().enumerate() {
        let axis = place.axis.as_deref().unwrap_or_default();
        if !names.contains(&axis) {
            let what = tr!(
                "has no axis {axis}; its shape is {axes}",
                axis = quoted(axis),
                axes = step.axes
            );
            let fix = match near_miss(axis, &names) {
                Some(near) => tr!("did you mean {near}?", near),
                None => tr!("its axes are {names}", names = lang::list(&names)),
            };
            return Err(Error::tensor(step.name, what, fix));
        }
        if places.iter().take(at).any(|other| other.axis == place.axis) {
            let what = tr!("has two indices on the axis {axis}", axis);
            return Err(Error::tensor(step.name, what, "give one index per axis"));
        }
    }
    let (mut index, mut missing) = (Vec::new(), None);
    for ((axis, own), (_, size)) in step.axes.iter().zip(whole.iter()) {
        let place = places.iter().find(|place| place.axis.as_deref() == Some(axis.name()));
        index.push(if let Some(place) = place {
            number(step, (axis, size), &place.at, &index, labels)?
        } else {
            missing = missing.or(Some((axis, size)).filter(|_| own != 1));
            0
        });
    }
    // What is given is looked at first.
    let Some((axis, size)) = missing else { return Ok(index) };
    let what = tr!("has {size} positions on the axis {axis}, but you gave none", size, axis);
    let fix = tr!("give one, such as {axis}=0; it can be 0 to {size}", axis, size = size - 1);
    Err(Error::tensor(step.name, what, fix))
}

/// A cell by the names of those axes that have more than one place.
fn by_names<V>(step: &Step<V>) -> String {
    let long = step.axes.iter().filter(|(_, size)| *size > 1);
    let places: Vec<String> = long.map(|(axis, _)| format!("{axis}=0")).collect();
    format!("{}[{}]", step.name, places.join(","))
}

/// The place on an axis that a number or a token's label says, at these places of the axes before it.
fn number<V>(
    step: &Step<V>,
    (axis, size): (Axis, usize),
    text: &str,
    before: &[usize],
    labels: Option<&Labels>,
) -> Result<usize> {
    let (last, called, shown) = (size.saturating_sub(1), axis.told(), quoted(text));
    let by_number = || match last {
        0 => tr!("give 0").to_owned(),
        _ => tr!("give one from 0 to {last}", last),
    };
    let is_of_tokens = matches!(axis, Axis::Query | Axis::Key);
    let none = |fix: String| Err(Error::tensor(step.name, no_place((axis, size), text), fix));
    if text.chars().all(|c| c.is_ascii_digit()) {
        return match text.parse() {
            Ok(at) if at < size => Ok(at),
            _ if is_of_tokens && labels.is_some() => {
                none(tr!("give one from 0 to {last}, or more labels in `tokens`", last))
            }
            _ => none(by_number()),
        };
    }
    let item = step.axes.item(before);
    let all: Vec<(usize, String)> = (0..size)
        .filter_map(|at| Some((at, token(labels, Some(step.name), (axis, size), item, at)?)))
        .collect();
    if all.is_empty() {
        return none(match axis {
            _ if is_of_tokens && labels.is_none() && text.parse::<f64>().is_err() => {
                tr!("give one from 0 to {last}; labels work only if `tokens` gives them", last)
            }
            _ => by_number(),
        });
    }
    let refuse = |what, fix| Err(Error::tensor(step.name, what, fix));
    // Tokenizers keep the space in front of a word.
    let is_it = |label: &str| label == text || label.trim_start_matches(['␣', 'Ġ', '▁']) == text;
    let found = all.iter().filter(|(_, label)| is_it(label));
    match found.map(|(at, _)| *at).collect::<Vec<usize>>().as_slice() {
        [at] => Ok(*at),
        [] => {
            let names: Vec<&str> = all.iter().map(|(_, label)| label.as_str()).collect();
            let what = tr!("has no {axis} called {text}", axis = called, text = shown);
            refuse(what, near_label(text, &names).unwrap_or_else(by_number))
        }
        several => {
            let places: Vec<String> = several.iter().map(ToString::to_string).collect();
            let all = if axis == Axis::Query { "queries" } else { "keys" };
            let what = tr!(
                "has several {all} called {text}: {places}",
                all,
                text = shown,
                places = lang::list(&places)
            );
            refuse(what, tr!("give one of these numbers").to_owned())
        }
    }
}

/// That an axis has no such place.
fn no_place((axis, size): (Axis, usize), text: &str) -> String {
    let (called, shown) = (axis.told(), quoted(text));
    if size == 1 {
        return tr!("has no {axis} {text}, only {axis} 0", axis = called, text = shown);
    }
    let many = axis.many();
    tr!("has no {axis} {text}: it has {size} {many}", axis = called, text = shown, size, many)
}

/// Which of these labels may be meant, if these are not too many to be told.
fn near_label(text: &str, labels: &[&str]) -> Option<String> {
    match near_miss(text, labels) {
        Some(near) => Some(tr!("did you mean {near}?", near = quoted(near))),
        None if labels.len() <= 20 => {
            Some(tr!("the labels are {names}", names = quoted(&lang::list(labels))))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_step_and_no_cell_is_refused() {
        for text in
            ["", "[0]", "scores[a,]", "scores[,]", "scores[=]", "scores[head=]", "run.json", "a b"]
        {
            assert!(text.parse::<Asked>().is_err(), "{text}");
        }
        for text in ["scores", "scores[0,1]", " scores[ 0, 1 ] ", "scores[head=1,key=cat]"] {
            assert!(text.parse::<Asked>().is_ok(), "{text}");
        }
        let meant = "scores[0,1,2]".parse::<Asked>();
        for text in [
            "scores[0,1,2",
            "scores(0,1,2)",
            "scores（0，1，2）",
            "scores［0、1、2］",
            "scores[0 1 2]",
        ] {
            assert_eq!(text.parse::<Asked>(), meant, "{text}");
        }
        assert_ne!("scores[key=，]".parse::<Asked>(), "scores[key=]".parse());
    }
}
