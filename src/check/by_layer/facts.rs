//! What do the records of an attention show by themselves, beside those of the reference?

use std::path::{Path, PathBuf};

use candle_core::Tensor;

use super::clues::clue;
use super::entries::given;
use super::measure::{apart, tolerance_of};
use super::parameters::differing;
use super::passes::other_masks;
use super::sides::Sides;
use base::error::{Result, shown};
use file::{Bundle, Entry, open_place};
use program::{Name, Role, wide};

/// What can be said of queries, keys and values that are not the reference's.
pub fn of_heads(left: &Path, right: &Path, tolerance: f64) -> Result<Vec<String>> {
    let (meant, own) = (open_place(left)?, open_place(right)?);
    let mut facts = Vec::new();
    for name in [Name::QHeads, Name::KHeads, Name::VHeads, Name::QRot, Name::KRot] {
        let both = (meant.tensor(name.as_str())?, own.tensor(name.as_str())?);
        let (Some(meant), Some(own)) = both else { continue };
        if meant.dims() != own.dims() || meant.rank() != 4 {
            continue;
        }
        let in_rows = |own: &Tensor| own.flatten_to(2)?.unsqueeze(0);
        if let Some(told) = clue(&in_rows(&meant)?, &in_rows(&own)?, tolerance)? {
            facts.push(tr!("of its {name}: {told}", name, told));
        }
    }
    Ok(facts)
}

/// In which cells masks differ, and that the port was called without the one that hides padding.
pub fn masks(
    sides: &Sides,
    at: usize,
    left: &[&PathBuf],
    right: &[&PathBuf],
) -> Result<Vec<String>> {
    let rows = sides.rows(at).filter(|_| sides.kept(at).is_some());
    let Some(told) = other_masks(left, right, rows.as_deref())? else { return Ok(Vec::new()) };
    let count = sides.alignment.maskless;
    let missing = (count > 0).then(|| {
        tr!(
            "the port was not called with a padding mask in all of its passes, and that of the reference hides {count} tokens",
            count
        )
    });
    Ok(missing.into_iter().chain([told]).collect())
}

/// What both sides' attention at a node computed, by its records; nothing where these are of other rows.
pub fn outputs(sides: &Sides, at: usize) -> Result<Option<[Tensor; 2]>> {
    let (Some(node), Some((_, partner))) = (sides.nodes().get(at), sides.partner(at)) else {
        return Ok(None);
    };
    let records = [sides.left.records(&node.path), sides.right.records(&partner.path)];
    let mut outputs = Vec::new();
    for records in records {
        let [path] = records[..] else { return Ok(None) };
        outputs.extend(open_place(path)?.tensor(Name::Output.as_str())?);
    }
    let is_it = |both: &[Tensor; 2]| both.iter().all(|own| own.dims() == node.shape);
    Ok(<[Tensor; 2]>::try_from(outputs).ok().filter(is_it))
}

/// That the port attends to something else than the reference does, and what it is.
pub fn other_memory(sides: &Sides, reference: &Bundle, port: &Bundle) -> Result<Option<String>> {
    let memory = |file: &Bundle| -> Result<Option<Tensor>> {
        file.tensor(Name::Memory.as_str())?.map(|own| wide(&own)).transpose()
    };
    let (Some(meant), Some(own)) = (memory(reference)?, memory(port)?) else { return Ok(None) };
    let tolerance = tolerance_of(&meant)?.max(tolerance_of(&own)?);
    if apart(&meant, &own)? <= tolerance {
        return Ok(None);
    }
    for (at, node) in sides.nodes().iter().enumerate().filter(|(_, node)| node.shape == own.dims())
    {
        let rows: Vec<usize> = (0..node.rows()).collect();
        let Some([its, other]) = sides.picked(at, &rows)? else { continue };
        if apart(&own, &other.reshape(own.dims())?)? <= tolerance {
            // It may be the same part whose numbers differ.
            if apart(&meant, &its.reshape(meant.dims())?)? <= tolerance {
                return Ok(None);
            }
            let name = shown(&node.name);
            return Ok(Some(tr!("it attends to {name}, to which the reference does not", name)));
        }
    }
    Ok(Some(tr!("the memory that it attends to is not the reference's").to_owned()))
}

/// Which parameters of the port are not the reference's: another one of these, one transposed, or other numbers.
pub fn other_parameters(reference: &Bundle, port: &Bundle, ranks: usize) -> Result<Vec<String>> {
    let is_parameter = |name: Name| name.role() == Role::Parameter;
    let (meant, own) = (given(reference, is_parameter)?, given(port, is_parameter)?);
    let named = |entries: Vec<Entry>| -> Vec<(String, Tensor)> {
        entries.into_iter().map(|entry| (entry.name, entry.tensor)).collect()
    };
    differing(&named(meant), &named(own), ranks)
}
