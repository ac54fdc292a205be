//! In which layout do a file's scores say that its queries, keys and values are, where another was stated?

use super::cores::{cores, not_denied};
use super::finding::{Contradiction, told};
use super::reading::{Draft, Reading, of_cells};
use base::error::Result;
use config::Setting;
use file::Entry;
use foreign::{Qkv, find_qkv, meanings};
use program::Name;

/// Readings with other axes, or as many heads as the file has: they hold only if nothing is wrong in them.
///
/// # Errors
/// If the stated layout does not fit the file.
pub fn laid_out_otherwise(draft: &Draft) -> Result<Vec<Reading>> {
    let Draft { record, settings, evidence, .. } = draft;
    let stated = not_denied(find_qkv(record, settings)?, record, settings);
    let mut all = Vec::new();
    for key in ["heads", "qkv_format"] {
        let setting = Setting::named(key).filter(|setting| setting.is_set(settings));
        let Some(setting) = setting else { continue };
        let mut other = draft.clone();
        setting.clear(&mut other.settings);
        other.evidence.retain(|evidence| evidence.key != key);
        for qkv in find_qkv(record, &other.settings).unwrap_or_default() {
            let Some(&[batch, heads, tokens, _]) = queries(&qkv) else { continue };
            let is_said = |entry: &&Entry| entry.tensor.dims().starts_with(&[batch, heads, tokens]);
            let is_lse = |entry: &&Entry| meanings(&entry.name).contains(&Name::Lse);
            let mut cells = of_cells(record).chain(record.entries.iter().filter(is_lse));
            let of_number = || {
                let number = heads.to_string();
                let mut said = evidence.iter().filter(|said| said.key == key);
                said.find(|said| said.text == number).map(|said| &said.tensor)
            };
            let tensor = cells.find(is_said).map(|entry| &entry.name).or_else(of_number);
            let is_stated = |own: &Qkv| queries(own) == queries(&qkv);
            let Some(tensor) = tensor.filter(|_| !stated.iter().any(is_stated)) else { continue };
            let recorded = if key == "heads" { heads.to_string() } else { qkv.format.to_string() };
            let both = [told(settings.to_json().get(key)), recorded];
            let found = Contradiction::of(key, Name::QHeads, both, tensor);
            for mut reading in cores(other.clone(), vec![qkv])? {
                reading.contradictions.push(found.clone());
                all.push(Reading { is_tentative: true, ..reading });
            }
        }
    }
    Ok(all)
}

/// The lengths of the queries' axes.
fn queries(qkv: &Qkv) -> Option<&[usize]> {
    qkv.tensors.first().map(|(_, tensor)| tensor.dims())
}
