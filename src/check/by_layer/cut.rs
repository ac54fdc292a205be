//! What would ranks compute that cut weights, or hand heads on, as is commonly done wrongly?

use candle_core::Tensor;

use base::error::Result;
use config::Settings;
use file::{Entry, Record};
use program::Name;

/// Weights that stand one behind the other in one matrix, where that is cut over ranks as one and each rank splits its stretch as
/// if it had of each of them: what the ranks have in place of each, joined. Nothing where lengths do not allow it.
pub fn cut_as_one(weights: &[Tensor], axis: usize, ranks: usize) -> Result<Option<Vec<Tensor>>> {
    let lengths = weights.iter().map(|own| Ok(own.dim(axis)?)).collect::<Result<Vec<_>>>()?;
    if ranks < 2 || lengths.iter().any(|length| !length.is_multiple_of(ranks)) {
        return Ok(None);
    }
    let whole = Tensor::cat(weights, axis)?;
    let stretch = lengths.iter().sum::<usize>() / ranks;
    let mut first = 0;
    let mut all = Vec::new();
    for length in lengths {
        let count = length / ranks;
        let own = (0..ranks).map(|rank| whole.narrow(axis, rank * stretch + first, count));
        all.push(Tensor::cat(&own.collect::<Result<Vec<_>, _>>()?, axis)?.contiguous()?);
        first += count;
    }
    Ok(Some(all))
}

/// The record of an attention with weights as ranks have them that cut them wrongly, and what would be wrong then.
pub fn with_weights_of_ranks(own: &Record, ranks: usize) -> Result<Vec<(Record, String)>> {
    let Some(settings) = own.config.as_ref().filter(|_| ranks > 1) else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    if let Some(entries) = fused(&own.entries, ranks)? {
        let record = Record { config: Some(settings.clone()), entries };
        all.push((record, tr!("the matrix of queries, keys and values, one behind the other, is cut over the ranks as one, and each rank splits its stretch in three: it has others than the queries, keys and values of its heads").to_owned()));
    }
    all.extend(interleaved(settings, &own.entries, ranks)?);
    Ok(all)
}

/// Weights and biases of queries, keys and values that were cut as one.
fn fused(entries: &[Entry], ranks: usize) -> Result<Option<Vec<Entry>>> {
    let mut entries = entries.to_vec();
    for names in [[Name::WQ, Name::WK, Name::WV], [Name::BQ, Name::BK, Name::BV]] {
        let place = |name: Name| entries.iter().position(|entry| entry.name == name.as_str());
        let places: Vec<usize> = names.into_iter().filter_map(place).collect();
        if places.is_empty() && names[0] == Name::BQ {
            continue;
        }
        let parts: Vec<Tensor> =
            places.iter().filter_map(|at| Some(entries.get(*at)?.tensor.clone())).collect();
        let [_, _, _] = parts[..] else { return Ok(None) };
        let Some(cut) = cut_as_one(&parts, 0, ranks)? else { return Ok(None) };
        for (at, tensor) in places.into_iter().zip(cut) {
            if let Some(entry) = entries.get_mut(at) {
                entry.tensor = tensor;
            }
        }
    }
    Ok(Some(entries))
}

/// Of fewer key heads than ranks, rank r has head r % n.
fn interleaved(
    settings: &Settings,
    entries: &[Entry],
    ranks: usize,
) -> Result<Option<(Record, String)>> {
    let (Some(heads), Some(of_keys)) = (settings.heads, settings.kv_heads) else {
        return Ok(None);
    };
    let fits = of_keys > 1
        && ranks > of_keys
        && ranks.is_multiple_of(of_keys)
        && heads.is_multiple_of(ranks);
    if !fits {
        return Ok(None);
    }
    let mut entries = entries.to_vec();
    for entry in &mut entries {
        let is_shared = entry.name == Name::WKNorm.as_str() && entry.tensor.rank() < 2;
        let is_of_keys = [Name::WK, Name::WV, Name::BK, Name::BV, Name::WKNorm, Name::BKNorm]
            .iter()
            .any(|name| entry.name == name.as_str());
        if !is_of_keys || is_shared {
            continue;
        }
        if !entry.tensor.dim(0)?.is_multiple_of(of_keys) {
            return Ok(None);
        }
        let each = entry.tensor.chunk(of_keys, 0)?;
        let of_ranks: Vec<&Tensor> = each.iter().cycle().take(ranks).collect();
        entry.tensor = Tensor::cat(&of_ranks, 0)?;
    }
    let config = Settings { kv_heads: Some(ranks), ..settings.clone() };
    let told = tr!(
        "of {of_keys} key heads, rank r of {ranks} has head r % {of_keys}, where r // {each} is meant",
        of_keys,
        ranks,
        each = ranks / of_keys
    );
    Ok(Some((Record { config: Some(config), entries }, told)))
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn each_rank_splits_its_stretch_of_what_is_cut_as_one() {
        let rows = |first: u32, count: u32| {
            let all = (first..first + count).map(|own| own as f32).collect();
            Tensor::from_vec::<_, f32>(all, count as usize, &Device::Cpu).expect("fits")
        };
        // q, k and v of 4, 2 and 2 rows: rank 0 has the rows 0 to 3 of all, rank 1 the rows 4 to 7.
        let cut = cut_as_one(&[rows(0, 4), rows(4, 2), rows(6, 2)], 0, 2).expect("numbers");
        let cut: Vec<Vec<f32>> =
            cut.expect("fits").iter().map(|own| own.to_vec1().expect("numbers")).collect();
        assert_eq!(cut, [vec![0.0, 1.0, 4.0, 5.0], vec![2.0, 6.0], vec![3.0, 7.0]]);
        let odd = cut_as_one(&[rows(0, 3), rows(3, 3)], 0, 2).expect("numbers");
        assert!(odd.is_none());
    }
}
