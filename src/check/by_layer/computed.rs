//! What does an attention compute, where its module gives the sum of that and a residual? It stands in the attention's record.

use super::measure::{Source, apart, tolerance_of};
use super::ranks::Ranks;
use base::error::Result;
use file::{Bundle, Info, Join, open_place};
use program::Name;

/// So many rows tell whether a module gives what its attention computes.
const FEW: usize = 8;

/// A recording with what its attentions compute as nodes of their own, before what their modules give, where that is more, and
/// the other side has not what these modules give.
pub fn with_computed(mut ranks: Ranks, has_other: impl Fn(&str) -> bool) -> Result<Ranks> {
    let [file] = ranks.passes.as_slice() else { return Ok(ranks) };
    let (mut records, mut tensors) = (Vec::new(), Vec::new());
    for (at, info) in file.infos().iter().enumerate() {
        if !has_other(&info.name)
            && let Some((record, place)) = computed(&ranks, file, (at, info))?
        {
            let stem = info.name.strip_suffix(".out").unwrap_or(&info.name);
            let call = info.formula.as_deref().and_then(|call| call.split_once('('));
            let formula = call.map(|(_, arguments)| format!("Linear({arguments}"));
            let name = format!("{stem}.out_proj.out");
            records.push(record);
            tensors.push((Info { name, formula, ..info.clone() }, Join::One(records.len(), place)));
        }
        tensors.push((info.clone(), Join::One(0, at)));
    }
    if !records.is_empty()
        && let Some(file) = ranks.passes.pop()
    {
        let path = file.path().to_owned();
        let all = std::iter::once(file).chain(records).collect();
        ranks.passes.push(Bundle::joined(&path, all, tensors));
    }
    Ok(ranks)
}

/// The record of the attention whose module gave a tensor, and where in it what it computed stands; nothing where that is the same.
fn computed(
    ranks: &Ranks,
    file: &Bundle,
    (at, info): (usize, &Info),
) -> Result<Option<(Bundle, usize)>> {
    let stem = info.name.strip_suffix(".out").filter(|_| info.formula.is_some());
    let mut own = ranks.records.iter().filter(|(own, _)| Some(own.as_str()) == stem);
    let (Some((_, path)), None) = (own.next(), own.next()) else { return Ok(None) };
    let record = open_place(path)?;
    let is_output = |own: &Info| own.name == Name::Output.as_str() && own.shape == info.shape;
    let Some(place) = record.infos().iter().position(is_output) else { return Ok(None) };
    let Some((width, outer)) = info.shape.split_last() else { return Ok(None) };
    let rows: Vec<usize> = (0..outer.iter().product::<usize>().min(FEW)).collect();
    let picked = |file: &Bundle, at: usize| Source { file, at, width: *width }.picked(&rows);
    let (given, own) = (picked(file, at)?, picked(&record, place)?);
    let tolerance = tolerance_of(&given)?.max(tolerance_of(&own)?);
    Ok((apart(&given, &own)? > tolerance).then_some((record, place)))
}
