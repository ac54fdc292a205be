//! Which positions do the tokens of a port have, where they stand in other places than the reference's, or are counted wrongly?

use super::measure::Beside;
use super::sides::Sides;
use config::{Positions, Segments, Settings};
use file::{Bundle, Record};
use program::{Name, spans};

/// The reference's settings, with positions and masks of keys in the order of the port's tokens, where these stand in other
/// places. Padding has the positions that the port gave it.
pub fn in_its_order(
    sides: &Sides,
    at: usize,
    settings: &Settings,
    port: &Bundle,
) -> Option<Settings> {
    let rows = sides.aligned(at)?;
    let own = port.config()?;
    let length = own.seq_len.filter(|length| Some(*length) == settings.seq_len)?;
    // Tokens that have no positions stated are counted.
    let counted = || {
        let items = settings.batch.filter(|_| settings.rope.is_some())?;
        Some(Positions::new(vec![vec![(0..length).collect(); items]]))
    };
    let positions = settings.positions.clone().or_else(counted).map(|meant| {
        // Where it does not say which positions padding has, they are 0.
        let zeros = || meant.0.iter().map(|plane| vec![vec![0; length]; plane.len()]).collect();
        let mut all: Vec<_> = own.positions.as_ref().map_or_else(zeros, |own| own.0.to_vec());
        for (plane, meant) in all.iter_mut().zip(meant.0.iter()) {
            put(plane, meant, &rows, length);
        }
        Positions::new(all)
    });
    let key_mask = settings.key_mask.as_ref().map(|meant| {
        let mut all = vec![vec!['0'; length]; meant.len()];
        let meant: Vec<Vec<char>> = meant.iter().map(|item| item.chars().collect()).collect();
        put(&mut all, &meant, &rows, length);
        all.into_iter().map(String::from_iter).collect()
    });
    Some(Settings { positions, key_mask, ..settings.clone() })
}

/// The reference's settings for the tokens that both sides have, item behind item as packed documents, and the rows of these:
/// of a port whose padding stands elsewhere, or that has none. Nothing where all rows stand beside each other.
pub fn packed(sides: &Sides, at: usize, settings: &Settings) -> Option<(Settings, Vec<usize>)> {
    let rows = sides.kept(at)?;
    let (items, length) = (settings.batch?, settings.seq_len.filter(|length| *length > 0)?);
    if sides.nodes().get(at)?.rows() != items * length {
        return None;
    }
    let count = |item: usize| rows.iter().filter(|row| **row / length == item).count();
    let lengths = (0..items).map(count).filter(|count| *count > 0).collect();
    let stated = settings.positions.as_ref();
    let of_rows = |plane: Option<&Vec<Vec<usize>>>| {
        let position = |row: &usize| match plane {
            Some(plane) => plane.get(row / length)?.get(row % length).copied(),
            None => Some(row % length),
        };
        rows.iter().map(position).collect::<Option<Vec<usize>>>().map(|all| vec![all])
    };
    let planes: Option<Vec<_>> = match stated {
        Some(stated) => stated.0.iter().map(|plane| of_rows(Some(plane))).collect(),
        None => Some(vec![of_rows(None)?]),
    };
    let has_positions = stated.is_some() || settings.rope.is_some();
    let positions = if has_positions { Some(Positions::new(planes?)) } else { None };
    let packed = Settings {
        batch: Some(1),
        seq_len: Some(rows.len()),
        segments: Some(Segments(vec![lengths])),
        positions,
        key_mask: None,
        ..settings.clone()
    };
    Some((packed, rows))
}

/// Puts what the reference has of its tokens where the port has these: items of so many tokens.
fn put<T: Copy>(all: &mut [Vec<T>], meant: &[Vec<T>], rows: &[Beside], length: usize) {
    let places =
        rows.iter().flat_map(|own| (0..own.count).map(|at| (own.left + at, own.right + at)));
    for (left, right) in places {
        let meant = meant.get(left / length).and_then(|item| item.get(left % length));
        let own = all.get_mut(right / length).and_then(|item| item.get_mut(right % length));
        if let (Some(meant), Some(own)) = (meant, own) {
            *own = *meant;
        }
    }
}

/// A position by the first one of a chunk, and a token's place there.
type Position = fn(usize, usize) -> usize;

/// The record with other positions of the tokens that each rank has, or each pass of a cache but the first, and what would be
/// wrong then.
pub fn with_other_positions(sides: &Sides, at: usize, own: &Record) -> Vec<(Record, String)> {
    let Record { config: Some(settings), entries } = own else { return Vec::new() };
    let x = entries.iter().find(|entry| entry.name == Name::X.as_str());
    let Some(&[_, tokens, _]) = x.map(|x| x.tensor.dims()) else { return Vec::new() };
    if settings.rope.is_none() || settings.positions.is_some() {
        return Vec::new();
    }
    let (ranks, passes) = (sides.right.ranks.count, sides.passes(at, tokens));
    let chunks = if ranks > 1 && tokens.is_multiple_of(ranks) {
        vec![tokens / ranks; ranks]
    } else if passes.len() > 1 && passes.iter().sum::<usize>() == tokens {
        passes
    } else {
        return Vec::new();
    };
    // The position of a token by the first one of its chunk, and its place there.
    let all: [(Position, &str, &str); 4] = [
        (
            |_, at| at,
            tr!("each rank counts the positions of its tokens from 0"),
            tr!("each pass of the cache counts the positions of its tokens from 0"),
        ),
        (
            |first, at| (first + at).saturating_sub(usize::from(first > 0)),
            tr!("the positions of each rank but the first are one too small"),
            tr!("the positions of each pass of the cache but the first are one too small"),
        ),
        (
            |first, at| first + at + usize::from(first > 0),
            tr!("the positions of each rank but the first are one too large"),
            tr!("the positions of each pass of the cache but the first are one too large"),
        ),
        (
            |first, _| first,
            tr!("all tokens of a rank have the position of its first"),
            tr!("all tokens of a pass have the position of its first"),
        ),
    ];
    let counted = |position: Position| {
        let spans = spans(&chunks).into_iter();
        let of = |(first, end): (usize, usize)| (0..end - first).map(move |at| position(first, at));
        spans.flat_map(of).collect()
    };
    // What stands in a place of the reference's is counted where a rank has it.
    let in_order = |order: &Vec<usize>| -> Option<Vec<usize>> {
        let length = tokens / order.len();
        let unit = |token: usize| order.iter().position(|slot| *slot == token / length);
        (0..tokens).map(|token| Some(unit(token)? * length + token % length)).collect()
    };
    let record = |positions: Vec<usize>| {
        let positions = Positions::new(vec![vec![positions]]);
        let config = Some(Settings { positions: Some(positions), ..settings.clone() });
        Record { config, entries: entries.clone() }
    };
    let told = |of_rank: &str, of_pass: &str| if ranks > 1 { of_rank } else { of_pass }.to_owned();
    let all = all
        .into_iter()
        .map(|(position, of_rank, of_pass)| (record(counted(position)), told(of_rank, of_pass)));
    let orders = sides.right.ranks.orders.iter();
    let orders = orders.filter(|order| !order.is_empty() && tokens.is_multiple_of(order.len()));
    let in_orders = orders.filter_map(in_order).map(|own| {
        let told = tr!("positions are counted on from rank to rank, in the order in which these hold the tokens");
        (record(own), told.to_owned())
    });
    all.chain(in_orders).collect()
}

/// The record of a pass of a cache with the places of its tokens in that as their positions, and what would be wrong then.
pub fn counting_padding(own: &Record) -> Option<(Record, String)> {
    let Record { config: Some(settings), entries } = own else { return None };
    let past = entries.iter().find(|entry| entry.name == Name::KPast.as_str())?;
    let first = past.tensor.dim(2).ok()?;
    let stated = settings.positions.as_ref()?;
    let counted = |item: &Vec<usize>| (first..first + item.len()).collect();
    let planes: Vec<Vec<Vec<usize>>> =
        stated.0.iter().map(|plane| plane.iter().map(counted).collect()).collect();
    let pairs = stated.0.iter().flatten().zip(planes.iter().flatten());
    let (meant, place) = pairs
        .flat_map(|(meant, own)| meant.iter().zip(own))
        .find(|(meant, place)| meant != place)
        .map(|(meant, place)| (*meant, *place))?;
    let told = tr!(
        "in the passes of the cache but the first, positions count the padding before the tokens: {place} where {meant} is meant",
        place,
        meant
    );
    let config = Some(Settings { positions: Some(Positions::new(planes)), ..settings.clone() });
    Some((Record { config, entries: entries.clone() }, told))
}
