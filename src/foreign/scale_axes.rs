//! Along which axes of what is stored do its scales stand, and which share of it has each?

use candle_core::Tensor;

use file::Entry;

/// The ways to put axes of these lengths under those of what is stored, each with what it costs to think so: an axis is as
/// long, of length 1, or has one for each group of places, along the features sooner than elsewhere.
pub(super) fn placings(own: &[usize], stored: &[usize]) -> Vec<(usize, Vec<usize>)> {
    let rank = stored.len();
    if own.iter().product::<usize>() == 1 {
        return vec![(0, vec![1; rank])];
    }
    if own.len() > rank {
        return Vec::new();
    }
    let mut all: Vec<(usize, Vec<usize>)> = Vec::new();
    for chosen in 0..1_u32 << rank {
        let places: Vec<usize> = (0..rank).filter(|at| chosen >> at & 1 == 1).collect();
        let fits =
            |(length, at): (&usize, &usize)| *length > 0 && stored[*at].is_multiple_of(*length);
        if places.len() != own.len() || !own.iter().zip(&places).all(fits) {
            continue;
        }
        // One scale for each item alone is rare.
        let is_of_items = rank == 4 && places == [0] && own != [1];
        let (mut shape, mut cost) = (vec![1; rank], usize::from(is_of_items));
        for (length, at) in own.iter().zip(places) {
            shape[at] = *length;
            let is_group = *length > 1 && *length != stored[at];
            cost += if !is_group {
                0
            } else if at + 1 == rank {
                2
            } else {
                3
            };
        }
        if !all.iter().any(|(_, other)| *other == shape) {
            all.push((cost, shape));
        }
    }
    all
}

/// Whether scales of this shape stand for groups of places of an axis.
pub(super) fn is_grouped(shape: &[usize], stored: &[usize]) -> bool {
    shape.iter().zip(stored).any(|(own, all)| *own > 1 && own != all)
}

/// The shape, of as many axes as what is stored, of offsets that stand for all of some axes and for each place of the
/// others, as the mean of the keys does.
pub(super) fn whole(offset: &Entry, stored: &[usize]) -> Option<Vec<usize>> {
    let all = placings(offset.tensor.dims(), stored).into_iter();
    let is_whole =
        |shape: &Vec<usize>| shape.iter().zip(stored).all(|(own, all)| *own == 1 || own == all);
    // A mean has its features.
    let last = |shape: &Vec<usize>| shape.last() != stored.last();
    all.map(|(_, shape)| shape).filter(is_whole).min_by_key(last)
}

/// Which part of the shares with one scale each has the largest code that there is, or the smallest.
pub(super) fn share_at_most(codes: &[f64], dims: &[usize], shape: &[usize]) -> f64 {
    let mut most = vec![0.0_f64; shape.iter().product()];
    let mut place = vec![0; dims.len()];
    let (first, last) =
        codes.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), own| {
            (low.min(*own), high.max(*own))
        });
    // Codes from 0 up are counted from their middle.
    let middle = if first >= 0.0 { f64::midpoint(first, last) } else { 0.0 };
    for code in codes {
        let at = place
            .iter()
            .zip(shape.iter().zip(dims))
            .fold(0, |at, (place, (own, all))| at * own + place * own / (*all).max(1));
        if let Some(most) = most.get_mut(at) {
            *most = most.max((code - middle).abs());
        }
        for (own, all) in place.iter_mut().zip(dims).rev() {
            *own += 1;
            if *own < *all {
                break;
            }
            *own = 0;
        }
    }
    let largest = most.iter().copied().fold(0.0, f64::max);
    // int4 and int8 end one lower than they begin.
    let reaching = most.iter().filter(|own| **own >= largest - 1.0).count();
    reaching as f64 / most.len().max(1) as f64
}

/// Scales in a shape of as many axes as what is stored, each whole or 1: one of a group stands for all of it.
pub(super) fn spread(
    tensor: &Tensor,
    shape: &[usize],
    stored: &[usize],
) -> candle_core::Result<Tensor> {
    let mut spread = tensor.reshape(shape)?;
    for (at, (own, all)) in shape.iter().zip(stored).enumerate() {
        if own == all || *own == 1 {
            continue;
        }
        let places: Vec<u32> =
            (0..*all).filter_map(|place| u32::try_from(place * own / all).ok()).collect();
        spread = spread.index_select(&Tensor::new(places, tensor.device())?, at)?;
    }
    Ok(spread)
}

/// What there is a scale of.
pub(super) fn told(shape: &[usize], stored: &[usize], names: &[&str]) -> String {
    let own = names.iter().zip(shape.iter().zip(stored)).filter(|(_, (own, _))| **own > 1);
    let own = own.map(|(name, (own, all))| {
        if own == all {
            (*name).to_owned()
        } else {
            tr!("group of {count} {name}s", count = all / own, name)
        }
    });
    let own: Vec<String> = own.collect();
    if own.is_empty() {
        tr!("one for all").to_owned()
    } else {
        tr!("one for each {own}", own = own.join(tr!(" and ")))
    }
}

#[cfg(test)]
mod tests {
    use super::placings;

    #[test]
    fn more_axes_than_are_stored_have_no_place() {
        assert_eq!(placings(&[1, 1, 1, 2, 3], &[2, 4, 3]), []);
        assert_eq!(placings(&[1, 1, 1, 1, 1], &[2, 4, 3]), [(0, vec![1; 3])]);
        assert_eq!(placings(&[3], &[2, 4, 3]), [(0, vec![1, 1, 3])]);
    }
}
