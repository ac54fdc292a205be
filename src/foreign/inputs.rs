//! Which tensors of a foreign file are X and the weights?

use std::collections::{HashMap, HashSet};
use std::fmt;

use candle_core::Tensor;

use super::layer::is_parameter;
use super::layout::{Without, pick};
use super::matched::Match;
use super::names::meanings;
use super::steps::Unmatched;
use super::weight_scales::WeightScales;
use base::error::{Error, Result, listed, near_miss, quoted};
use base::lang;
use config::Settings;
use file::{Entry, Record};
use program::Name;

/// Names of a file's tensors beside ours: `theirs=ours`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameMap(Vec<(String, String)>);

impl std::str::FromStr for NameMap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pair = |part: &str| match part.rsplit_once('=') {
            Some((theirs, ours)) if !theirs.is_empty() && !ours.is_empty() => {
                Ok((theirs.trim().to_owned(), ours.trim().to_owned()))
            }
            _ => Err(tr!("`{part}` is not THEIRS=OURS", part)),
        };
        text.split(',').map(pair).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for NameMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.0.iter().map(|(theirs, ours)| format!("{theirs}={ours}"));
        f.write_str(&pairs.collect::<Vec<_>>().join(","))
    }
}

impl NameMap {
    /// This map and another.
    pub fn and(mut self, other: &Self) -> Self {
        self.0.extend(other.0.iter().cloned());
        self
    }

    /// Gives the tensors of files, by their names, those that they are mapped to.
    ///
    /// # Errors
    /// If no file has such a tensor, there is no such step, or a name is taken already.
    pub fn apply(&self, files: &mut [Vec<&mut String>]) -> Result<Vec<Match>> {
        let outer = Name::ALL.iter().filter(|name| !name.row().is_inner);
        let steps: Vec<&str> = outer.map(|name| name.as_str()).collect();
        let mut seen: HashMap<&str, &str> = HashMap::new();
        let mut taken = Vec::new();
        for (theirs, ours) in &self.0 {
            if let Some(before) = seen.insert(theirs, ours) {
                let (theirs, before) = (quoted(theirs), quoted(before));
                let what = tr!(
                    "`map`: {theirs} is mapped twice, to {before} and to {ours}",
                    theirs,
                    before,
                    ours = quoted(ours)
                );
                return Err(Error::config(what, "map it to one step"));
            }
            let refuse = |what: String, fix: String| {
                let pair = format!("{}={}", quoted(theirs), quoted(ours));
                Err(Error::config(format!("`map={pair}`: {what}"), fix))
            };
            if !steps.contains(&ours.as_str()) {
                let fix = match near_miss(ours, &steps) {
                    Some(near) => tr!("did you mean {near}?", near),
                    None => tr!("the steps are {steps}", steps = lang::list(&steps)),
                };
                return refuse(tr!("no step is called {ours}", ours = quoted(ours)), fix);
            }
            let mut found = false;
            let has = |file: &[&mut String], name: &str| file.iter().any(|own| **own == name);
            for file in files.iter_mut().filter(|file| has(file, theirs)) {
                if theirs != ours && has(file, ours) {
                    let what = tr!("the file has a tensor {ours} as well", ours);
                    return refuse(what, "map one of the two to another step".to_owned());
                }
                found = true;
                let renamed = file.iter_mut().filter(|own| **own == theirs);
                renamed.for_each(|own| ours.clone_into(own));
            }
            if !found {
                let names: Vec<&&mut String> = files.iter().flatten().collect();
                let what = tr!("the file has no tensor {theirs}", theirs = quoted(theirs));
                return refuse(what, tr!("it has {names}", names = listed(&names)));
            }
            taken.push(Match::as_it_is(ours, theirs));
        }
        Ok(taken)
    }
}

/// A file's X and weights under the names that steps have.
pub struct Inputs {
    /// The file with those names.
    pub record: Record,
    /// What was taken as what.
    pub matches: Vec<Match>,
    /// The number of heads, where the weights tell it.
    pub heads: Option<usize>,
    /// The tensors that were left out, and why.
    pub unmatched: Vec<Unmatched>,
    /// What the weights in few bits were multiplied by.
    pub scales: WeightScales,
}

/// Gives X and the weights of a file that is not one of ours the names that steps have. What `flags` replace is not
/// looked for.
///
/// # Errors
/// If the file holds several layers, or several tensors that may be X, and nothing picks one.
pub fn find_inputs(mut record: Record, flags: &Settings) -> Result<Inputs> {
    let (mut matches, mut heads, mut scales) = (Vec::new(), None, WeightScales::default());
    let prefix = flags.prefix.as_deref();
    let hidden = prefix.and_then(|prefix| keep_layer(&mut record, prefix));
    let picks_steps = hidden.is_some();
    let mut unmatched = hidden.unwrap_or_default();
    let names: Vec<&str> = record.entries.iter().map(|entry| entry.name.as_str()).collect();
    let without = Without::of(flags, true);
    let layer = if flags.weights.is_some() {
        None
    } else {
        match pick(&names, prefix, without) {
            // The prefix may be of the steps alone.
            Err(_) if picks_steps => pick(&names, None, without)?,
            picked => picked?,
        }
    };
    if let Some(layer) = layer {
        let weights = layer.weights(flags.into(), |name| Ok(record.tensor(name).cloned()))?;
        let unread = layer.unread(&names, &weights).into_iter();
        unmatched.extend(unread.filter(|name| is_parameter(name)).map(Unmatched::unread));
        let used: HashSet<&str> =
            weights.matches.iter().map(|matched| matched.tensor.as_str()).collect();
        record.entries.retain(|entry| !used.contains(entry.name.as_str()));
        let entry = |(name, tensor): (Name, Tensor)| Entry::of(name.as_str(), tensor);
        record.entries.extend(weights.tensors.into_iter().map(entry));
        let renamed = weights.matches.into_iter().filter(|matched| matched.step != matched.tensor);
        matches.extend(renamed);
        (heads, scales) = (weights.heads, weights.scales);
    }
    let inputs = [
        (Name::X, flags.x.is_some()),
        (Name::Memory, flags.memory.is_some()),
        (Name::MemoryV, flags.memory_v.is_some()),
        (Name::KPast, flags.past.is_some()),
        (Name::VPast, flags.past.is_some()),
        (Name::Sinks, false),
    ];
    for (name, _) in inputs.into_iter().filter(|(_, is_replaced)| !is_replaced) {
        matches.extend(find_input(&mut record, name)?);
    }
    Ok(Inputs { record, matches, heads, unmatched, scales })
}

/// Leaves the tensors of other layers out, if some are under the prefix; those without any prefix stay. Tells which
/// of them may be steps.
fn keep_layer(record: &mut Record, prefix: &str) -> Option<Vec<Unmatched>> {
    let prefix = prefix.trim_end_matches(['.', '/']);
    let is_under =
        |name: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(['.', '/']));
    let is_kept = |entry: &Entry| !entry.name.contains(['.', '/']) || is_under(&entry.name);
    if !record.entries.iter().any(|entry| is_under(&entry.name)) {
        return None;
    }
    let others = record.entries.iter().filter(|entry| !is_kept(entry));
    let hidden = others.filter(|entry| !meanings(&entry.name).is_empty()).map(|entry| {
        let why = tr!("not under the prefix {prefix}", prefix = quoted(prefix));
        Unmatched { tensor: entry.name.clone(), why }
    });
    let hidden = hidden.collect();
    record.entries.retain(is_kept);
    Some(hidden)
}

/// Calls the one tensor that may be this input so, and gives tokens a batch axis where they have none.
fn find_input(record: &mut Record, name: Name) -> Result<Option<Match>> {
    let may_be = |entry: &&mut Entry| meanings(&entry.name).contains(&name);
    let exact = record.entries.iter().position(|entry| entry.name == name.as_str());
    let mut candidates: Vec<&mut Entry> = match exact {
        Some(at) => record.entries.get_mut(at).into_iter().collect(),
        None => record.entries.iter_mut().filter(may_be).collect(),
    };
    if candidates.len() > 1 {
        let names: Vec<&str> = candidates.iter().map(|entry| entry.name.as_str()).collect();
        let what = tr!("may be {names}", names = quoted(&names.join(tr!(" or "))));
        let first = quoted(names.first().copied().unwrap_or_default());
        let fix = tr!("say which one, for example `map={first}={name}`", first, name);
        return Err(Error::tensor(name, what, fix));
    }
    let Some(entry) = candidates.pop() else { return Ok(None) };
    let mut taken = Match::as_it_is(name.as_str(), &entry.name);
    if entry.tensor.rank() == 2 {
        entry.tensor = with_batch(&entry.tensor)?;
        taken = taken.read(tr!("a batch of one"));
    }
    let said = exact.is_none() || taken.chosen;
    name.as_str().clone_into(&mut entry.name);
    Ok(said.then_some(taken))
}

/// X (`seq_len`, `d_in`) is a batch of one.
///
/// # Errors
/// If candle fails.
pub fn with_batch(x: &Tensor) -> Result<Tensor> {
    Ok(if x.rank() == 2 { x.unsqueeze(0)? } else { x.clone() })
}
