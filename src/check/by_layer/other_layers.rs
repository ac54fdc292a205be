//! Is the attention of a layer run as that of another layer is?

use super::super::best_reading::fits;
use super::super::finding::told;
use super::super::tolerance::Tolerances;
use super::join::BEHIND;
use super::sides::Sides;
use base::error::{Error, Result, listed, shown};
use config::{Setting, Settings};
use file::{Bundle, Entry, Record, open_place};
use program::{Name, Role};

/// The record with the settings of each other layer of the reference that has others, all of these or some, and what would be
/// wrong then.
pub fn with_settings_of_others(
    sides: &Sides,
    path: &str,
    own: &Record,
) -> Result<Vec<(Record, String)>> {
    let Some(meant) = &own.config else { return Ok(Vec::new()) };
    let (mut all, mut in_part) = (Vec::<(Record, String)>::new(), Vec::new());
    for (stem, place) in sides.left.ranks.records.iter().filter(|(stem, _)| stem != path) {
        let other = open_place(place)?;
        let Some(config) = other.config() else { continue };
        let is_known = |(record, _): &(Record, String)| record.config.as_ref() == Some(config);
        let differences = apart(meant, config);
        if differences.is_empty() || all.iter().any(is_known) {
            continue;
        }
        let is_setting =
            |name: &str| Name::in_files(name).is_some_and(|name| name.role() == Role::Setting);
        let mut entries: Vec<Entry> =
            own.entries.iter().filter(|entry| !is_setting(&entry.name)).cloned().collect();
        for (at, info) in other.infos().iter().enumerate() {
            if is_setting(&info.name) {
                entries.push(info.clone().with(other.tensor_at(at)?));
            }
        }
        behind_rotation(&mut entries, &other);
        let told = |differences: &[String]| {
            let (stem, what) = (shown(stem), listed(differences));
            tr!("it is run with the settings of {stem}: {what}", stem, what)
        };
        all.push((Record { config: Some(config.clone()), entries }, told(&differences)));
        // Of the end alone a run may be right whose steps are not.
        let end = with_some(own, &other, meant.clone())?;
        let is_open = fits(&end, &Settings::default(), &Tolerances::default());
        let some =
            if is_open.is_ok_and(|fits| !fits) { some_of(meant, config) } else { Vec::new() };
        for settings in some {
            let told = told(&apart(meant, &settings));
            in_part.push((with_some(own, &other, settings)?, told));
        }
    }
    Ok(all.into_iter().chain(in_part).collect())
}

/// Settings of the tokens of a call, which are no layer's.
const OF_TOKENS: [&str; 5] = ["batch", "seq_len", "segments", "positions", "key_mask"];
/// Of more settings that differ not all choices are tried.
const MOST_SETTINGS: usize = 4;

/// The settings with some of those of another layer that differ, the fewest first, each with what says more of it.
fn some_of(meant: &Settings, other: &Settings) -> Vec<Settings> {
    let [own, others] = [meant, other].map(Settings::to_json);
    let mut differing = differing(&own, &others);
    differing.retain(|key| !OF_TOKENS.contains(&key.as_str()));
    if differing.len() > MOST_SETTINGS {
        return Vec::new();
    }
    let mut choices: Vec<u32> = (1..(1 << differing.len()) - 1).collect();
    choices.sort_by_key(|choice| choice.count_ones());
    let made = |choice: u32| {
        let mut own = own.as_object()?.clone();
        let is_taken = |key: &str| {
            let of = Setting::named(key).and_then(|own| own.of);
            let at = differing.iter().position(|own| own == key || Some(own.as_str()) == of);
            at.is_some_and(|at| choice >> at & 1 == 1)
        };
        own.retain(|key, _| !is_taken(key));
        let more = others.as_object()?.iter().filter(|(key, _)| is_taken(key));
        own.extend(more.map(|(key, value)| (key.clone(), value.clone())));
        serde_json::from_value(own.into()).ok()
    };
    choices.into_iter().filter_map(made).collect()
}

/// What a record was given and gave in the end, under settings of which another layer has some, with frequencies where they
/// have any.
fn with_some(own: &Record, other: &Bundle, settings: Settings) -> Result<Record> {
    let is_kept = |entry: &&Entry| {
        let name = Name::in_files(&entry.name);
        let is_end = matches!(name, Some(Name::Output | Name::Concat));
        is_end || name.is_some_and(|name| name.is_given() && name != Name::RopeFreqs)
    };
    let mut entries: Vec<Entry> = own.entries.iter().filter(is_kept).cloned().collect();
    let is_freqs = |name: &str| name == Name::RopeFreqs.as_str();
    if settings.rope.is_some() {
        let freqs = own.entries.iter().find(|entry| is_freqs(&entry.name)).cloned();
        let at = other.infos().iter().position(|info| is_freqs(&info.name));
        let others = at.and_then(|at| Some((at, other.infos().get(at)?)));
        let others =
            others.map(|(at, info)| Ok::<_, Error>(info.clone().with(other.tensor_at(at)?)));
        entries.extend(freqs.map(Ok).or(others).transpose()?);
    }
    Ok(Record { config: Some(settings), entries })
}

/// What the settings of another layer say in place of one's own.
fn apart(meant: &Settings, other: &Settings) -> Vec<String> {
    let [meant, other] = [meant, other].map(Settings::to_json);
    let tell = |key: &String| {
        let [meant, other] = [&meant, &other].map(|own| told(own.get(key)));
        tr!("{key} is {other} where {meant} was meant", key, other, meant)
    };
    differing(&meant, &other).iter().map(tell).collect()
}

/// The keys of settings that differ, without those that say more of one that does.
fn differing(meant: &serde_json::Value, other: &serde_json::Value) -> Vec<String> {
    let keys = |settings: &serde_json::Value| -> Vec<String> {
        settings.as_object().map(|own| own.keys().cloned().collect()).unwrap_or_default()
    };
    let mut all = keys(meant);
    all.extend(keys(other).into_iter().filter(|key| meant.get(key).is_none()));
    let differs = |key: &str| meant.get(key) != other.get(key);
    // The base of a rotation says nothing where there is none.
    let is_more = |key: &str| Setting::named(key).and_then(|own| own.of).is_some_and(differs);
    all.into_iter().filter(|key| differs(key) && !is_more(key)).collect()
}

/// Whether a file has a step.
pub fn has(file: &Bundle, name: Name) -> bool {
    file.infos().iter().any(|info| info.name == name.as_str())
}

/// Queries and keys that a function of attention got are those behind all that the reference does to them: its norms and
/// rotations.
pub fn behind_rotation(entries: &mut [Entry], reference: &Bundle) {
    for (heads, behind) in BEHIND {
        let is_behind = |entry: &Entry| behind.iter().any(|name| entry.name == name.as_str());
        let is_rotated = reference.config().is_some_and(|config| config.rope.is_some());
        let recorded = behind.into_iter().find(|name| has(reference, *name));
        let last = recorded.or(is_rotated.then_some(behind[0]));
        let Some(last) = last.filter(|_| !entries.iter().any(is_behind)) else { continue };
        for entry in entries.iter_mut().filter(|entry| entry.name == heads.as_str()) {
            last.as_str().clone_into(&mut entry.name);
        }
    }
}
