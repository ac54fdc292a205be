//! Is the attention of a layer run as that of another layer is?

use super::super::finding::told;
use super::join::BEHIND;
use super::sides::Sides;
use base::error::{Result, listed, shown};
use config::{Setting, Settings};
use file::{Bundle, Entry, Record, open_place};
use program::{Name, Role};

/// The record with the settings of each other layer of the reference that has others, and what would be wrong then.
pub fn with_settings_of_others(
    sides: &Sides,
    path: &str,
    own: &Record,
) -> Result<Vec<(Record, String)>> {
    let Some(meant) = &own.config else { return Ok(Vec::new()) };
    let mut all: Vec<(Record, String)> = Vec::new();
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
        let (stem, what) = (shown(stem), listed(&differences));
        let told = tr!("it is run with the settings of {stem}: {what}", stem, what);
        all.push((Record { config: Some(config.clone()), entries }, told));
    }
    Ok(all)
}

/// What the settings of another layer say in place of one's own.
fn apart(meant: &Settings, other: &Settings) -> Vec<String> {
    let [meant, other] = [meant, other].map(Settings::to_json);
    let keys = |settings: &serde_json::Value| -> Vec<String> {
        settings.as_object().map(|own| own.keys().cloned().collect()).unwrap_or_default()
    };
    let mut all = keys(&meant);
    all.extend(keys(&other).into_iter().filter(|key| meant.get(key).is_none()));
    let differs = |key: &str| meant.get(key) != other.get(key);
    // The base of a rotation says nothing where there is none.
    let is_more = |key: &str| Setting::named(key).and_then(|own| own.of).is_some_and(differs);
    let differing = all.iter().filter(|key| differs(key) && !is_more(key));
    let tell = |key: &String| {
        let [meant, other] = [&meant, &other].map(|own| told(own.get(key)));
        tr!("{key} is {other} where {meant} was meant", key, other, meant)
    };
    differing.map(tell).collect()
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
