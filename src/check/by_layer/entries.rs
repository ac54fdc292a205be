//! What is given to a check of a port's attention: what it recorded, and what its modules got and gave.

use candle_core::{DType, Device, Tensor};

use super::measure::{apart, narrow, tolerance_of};
use super::other_layers::{behind_rotation, has};
use super::sides::Sides;
use base::error::Result;
use file::{Bundle, Entry, Info, Record};
use foreign::{Node, projected};
use program::{Name, Role, wide};

/// The steps of a record that are given, of those that are asked for.
pub fn given(file: &Bundle, is_asked: impl Fn(Name) -> bool) -> Result<Vec<Entry>> {
    steps(file, |name| name.is_given() && is_asked(name))
}

/// Those that are computed.
fn computed(file: &Bundle) -> Result<Vec<Entry>> {
    steps(file, |name| !name.is_given())
}

fn steps(file: &Bundle, is_asked: impl Fn(Name) -> bool) -> Result<Vec<Entry>> {
    let infos = file.infos().iter().enumerate();
    let asked = infos.filter(|(_, info)| Name::in_files(&info.name).is_some_and(&is_asked));
    asked.map(|(at, info)| Ok(info.clone().with(file.tensor_at(at)?))).collect()
}

/// Takes what a port was given of some names, and what it computed, into a record of the reference's.
pub fn take_from(
    port: &Bundle,
    reference: &Bundle,
    names: &[Name],
    entries: &mut Vec<Entry>,
) -> Result<()> {
    let seen = given(port, |name| names.contains(&name))?;
    entries.retain(|own| seen.iter().all(|seen| seen.name != own.name));
    entries.extend(seen.into_iter().chain(as_handed_over(reference, port)?));
    Ok(())
}

/// The steps that a port computed.
fn as_handed_over(reference: &Bundle, port: &Bundle) -> Result<Vec<Entry>> {
    let mut entries = computed(port)?;
    if port.config().is_none() && [Name::Q, Name::K].iter().all(|name| !has(port, *name)) {
        behind_rotation(&mut entries, reference);
    }
    Ok(entries)
}

/// What the port's attention got and gave, as its modules have it: of all rows, or of those that were `kept`, as one item.
pub fn seen_outside(
    sides: &Sides,
    at: usize,
    reference: &Bundle,
    kept: Option<&[usize]>,
) -> Result<Vec<Entry>> {
    let Some(node) = sides.nodes().get(at) else { return Ok(Vec::new()) };
    let all: Vec<usize> = (0..node.rows()).collect();
    let rows = kept.unwrap_or(&all);
    let mut entries = Vec::new();
    let mut places = vec![(Name::X, node.reads.first().copied())];
    // Where the output projection is a module of its own, attention gives what stands before it.
    for name in [Name::Output, Name::Concat] {
        let meant = reference.tensor(name.as_str())?.filter(|own| own.dims() == node.shape);
        if let (Some(meant), Some([own, _])) = (meant, sides.picked(at, rows)?) {
            let meant = wide(&meant)?.reshape((1, all.len(), node.width()))?;
            let picked = meant.index_select(&places_of(rows)?, 1)?.to_dtype(own.dtype())?;
            if apart(&picked, &own)? <= tolerance_of(&own)? {
                places.push((name, Some(at)));
                break;
            }
        }
    }
    if places.len() == 1
        && let Some(own) = without_residual(sides, (at, node), reference, rows)?
    {
        let own = if kept.is_some() { own } else { own.reshape(node.shape.as_slice())? };
        entries.push(Entry::of(Name::Output.as_str(), own));
    }
    for (name, place) in places {
        let Some(place) = place else { continue };
        if let (Some([_, own]), Some(node)) = (sides.picked(place, rows)?, sides.nodes().get(place))
        {
            let own = if kept.is_some() { own } else { own.reshape(node.shape.as_slice())? };
            entries.push(Entry::of(name.as_str(), own));
        }
    }
    Ok(entries)
}

/// The queries, keys and values that modules within the port's attention gave, in the shapes that the reference has them in.
pub fn projections(sides: &Sides, partner: &Node, reference: &Bundle) -> Result<Vec<Entry>> {
    let [nodes] = sides.right.nodes.as_slice() else { return Ok(Vec::new()) };
    let mut entries = Vec::new();
    for node in nodes.iter().filter(|node| !node.is_input) {
        let inner = node.path.strip_prefix(partner.path.as_str());
        let Some(name) = inner.and_then(|own| own.strip_prefix(['.', '/'])).and_then(projected)
        else {
            continue;
        };
        let is_it = |info: &Info| info.name == name.as_str() && info.shape == node.shape;
        let source = sides.right.source(0, node);
        if let Some(source) = source.filter(|_| reference.infos().iter().any(is_it)) {
            let own = source.rows(0, node.rows())?.reshape(node.shape.as_slice())?;
            entries.push(Entry::of(name.as_str(), own));
        }
    }
    Ok(entries)
}

/// What the port's attention computed, where its module gives that and a residual: what is left of it, as the reference's output
/// is what is left of its own.
fn without_residual(
    sides: &Sides,
    (at, node): (usize, &Node),
    reference: &Bundle,
    rows: &[usize],
) -> Result<Option<Tensor>> {
    let meant = reference.tensor(Name::Output.as_str())?.filter(|own| own.dims() == node.shape);
    let (Some(meant), Some([left, right])) = (meant, sides.picked(at, rows)?) else {
        return Ok(None);
    };
    let meant = wide(&meant)?.reshape((1, node.rows(), node.width()))?;
    let meant = meant.index_select(&places_of(rows)?, 1)?.to_dtype(left.dtype())?;
    let tolerance = tolerance_of(&left)?;
    for place in (0..at).rev() {
        if sides.nodes().get(place).is_none_or(|own| own.shape != node.shape) {
            continue;
        }
        if let Some([of_left, of_right]) = sides.picked_by(place, at, rows)?
            && apart(&left, &of_left.add(&meant)?)? <= tolerance
        {
            return Ok(Some(right.sub(&of_right)?));
        }
    }
    Ok(None)
}

/// Rows as a tensor of their places.
fn places_of(rows: &[usize]) -> Result<Tensor> {
    let places = rows.iter().map(|row| u32::try_from(*row).unwrap_or(u32::MAX)).collect();
    Ok(Tensor::from_vec::<_, u32>(places, rows.len(), &Device::Cpu)?)
}

/// The record with its rotary frequencies as they are in the type of 16 bits that its output has, or all of whose numbers are of
/// such a type; nothing where it has no frequencies, or other ones in no such type.
pub fn with_cast_frequencies(record: &Record) -> Result<Option<Record>> {
    let of = |name: Name| record.entries.iter().position(|entry| entry.name == name.as_str());
    let output = of(Name::Output).or(of(Name::Concat)).and_then(|at| record.entries.get(at));
    let (Some(output), Some(freqs)) = (output, of(Name::RopeFreqs)) else { return Ok(None) };
    let half = narrow(&output.tensor)?;
    if !matches!(half, DType::F16 | DType::BF16) {
        return Ok(None);
    }
    let mut cast = record.clone();
    let own = &mut cast.entries[freqs].tensor;
    *own = own.to_dtype(half)?.to_dtype(own.dtype())?;
    Ok(Some(cast))
}

/// The tensors of a record in one type: what the port has in 16 bits stays so, and parameters meet it in f32.
pub fn in_one_type(entries: Vec<Entry>) -> Result<Vec<Entry>> {
    let is_parameter = |entry: &Entry| {
        Name::in_files(&entry.name).is_some_and(|name| name.role() == Role::Parameter)
    };
    let wide_one = |entry: Entry| {
        let is_narrow = matches!(entry.tensor.dtype(), DType::F16 | DType::BF16);
        let tensor = if is_parameter(&entry) && is_narrow {
            entry.tensor.to_dtype(DType::F32)?
        } else {
            entry.tensor.clone()
        };
        Ok(Entry { tensor, ..entry })
    };
    entries.into_iter().map(wide_one).collect()
}
