//! In which ways can a file be understood that holds queries, keys and values in place of X and weights?

use candle_core::{Device, Tensor};

use super::bias_claim::{says_stated_bias, with_biases};
use super::finding::{Contradiction, told};
use super::found_masks::masks_against;
use super::reading::{Draft, Reading, of_cells};
use super::written::written;
use super::written_pages::new_keys;
use base::error::Result;
use base::memory::lacking;
use config::{CausalAlign, End, Mask, QkvFormat, Segments, Settings, Start};
use file::{Entry, Record};
use foreign::{
    Caller, Evidence, FoundMask, LEFT_PADDING, Match, Paged, Qkv, is_called, listed, meanings,
    numbers, take_arguments, take_bias, take_mask, take_sides, take_slopes, unroll_mask,
};
use program::{Name, whole};

/// The ways to understand a file as that of a run which starts at queries, keys and values.
pub fn cores(mut draft: Draft, readings: Vec<Qkv>) -> Result<Vec<Reading>> {
    take_head_norms(&mut draft);
    let has_output =
        draft.settings.weights.is_some() || draft.record.tensor(Name::WO.as_str()).is_some();
    draft.settings.end.get_or_insert(if has_output { End::default() } else { End::Concat });
    let mut masks = take_mask(&mut draft.record, Caller::Core)?;
    let sides = take_sides(&mut draft.record)?;
    let against_sides = sides.as_ref().and_then(|sides| against(sides, &draft.settings));
    // The mask of another file, where one is stated, comes first.
    let beside = match draft.settings.attn_mask {
        None => None,
        Some(_) => masks.drain(..).next(),
    };
    draft.unmatched.extend(beside.iter().map(FoundMask::left_out));
    let slopes = take_slopes(&mut draft.record);
    let bias = take_bias(&mut draft.record, Caller::Core);
    let biased = |reading: Reading| with_biases(reading, bias.as_ref(), slopes.as_ref());
    let mut masks: Vec<Option<FoundMask>> = masks.into_iter().map(Some).collect();
    if masks.is_empty() {
        let beside = masks_against(&draft.record, &draft.settings)?;
        masks = std::iter::once(None).chain(beside.into_iter().map(Some)).collect();
    }
    if draft.settings.q.is_some() {
        return masks
            .into_iter()
            .map(|mask| draft.clone().reading(mask).and_then(biased))
            .collect();
    }
    let readings = not_denied(readings, &draft.record, &draft.settings);
    // Attention to one key is none: whatever it lacks would seem right.
    let keys = |reading: &Qkv| {
        let axis = if reading.start == Start::Heads { 2 } else { 1 };
        reading.tensors.get(1).and_then(|(_, tensor)| tensor.dims().get(axis).copied())
    };
    let most = readings.iter().map(keys).max().flatten();
    let is_format_told = draft.settings.qkv_format.is_some();
    let (mut all, mut refused) = (Vec::new(), None);
    for reading in as_written(readings, &draft.record)? {
        let is_trivial = keys(&reading) == Some(1) && most != Some(1);
        let is_shifted = reading.is_tentative;
        let against = reading.against.clone();
        let format = (reading.start == Start::Heads).then_some(reading.format);
        let mut own = draft.clone();
        let taken = |name: &str| reading.matches.iter().any(|taken| taken.tensor == name);
        // What is told of a zero point need not be said to be left aside.
        let is_told = |name: &Name| against.iter().any(|own| own.setting == name.as_str());
        let is_understood =
            |entry: &Entry| taken(&entry.name) || meanings(&entry.name).iter().any(is_told);
        own.record.entries.retain(|entry| !is_understood(entry));
        let (left, differs) = written(&mut own.record, &reading)?;
        own.unmatched.extend(left);
        own.leave_scales()?;
        let entry = |(name, tensor): (Name, Tensor)| Entry::of(name.as_str(), tensor);
        own.record.entries.extend(reading.tensors.into_iter().map(entry));
        own.settings.start = Some(reading.start);
        own.settings.heads = own.settings.heads.or(reading.heads);
        let mut own = matched(own, &reading.matches);
        if is_behind_cache(&own) {
            own.settings.causal_align = Some(CausalAlign::BottomRight);
        }
        let aligned = aligned_to_lengths(&own, sides.as_ref())?;
        // Behind a cache what counts is where each length ends; a mask that ends with the cache itself contradicts that.
        let behind_cache =
            aligned.as_ref().and_then(|aligned| aligned.against_cache(&own.settings));
        take_left_padding(&mut own)?;
        let of_lengths = aligned.map(|Aligned { mask, has_window, .. }| {
            let window = own.settings.window.filter(|_| !has_window);
            let settings = Settings { window, ..own.settings.clone() };
            (Some(mask), Draft { settings, ..own.clone() }, false)
        });
        let has_sides = sides.is_some() && of_lengths.is_some();
        let as_stated = masks.iter().filter(|mask| !has_sides || mask.is_some());
        let as_stated = as_stated.map(|mask| (mask.clone(), own.clone(), true));
        for (mask, draft, is_as_stated) in of_lengths.into_iter().chain(as_stated) {
            match draft.reading(mask) {
                Ok(reading) => {
                    let behind_cache = behind_cache.iter().filter(|_| is_as_stated);
                    let own = reading.contradictions.iter().chain(&against);
                    let contradictions =
                        differs.iter().chain(behind_cache).chain(&against_sides).chain(own);
                    let contradictions = contradictions.cloned().collect();
                    // What was not recorded contradicts nothing.
                    let mask = reading.mask.clone().or(beside.clone()).filter(|_| is_as_stated);
                    let found = Reading { format, is_trivial, mask, contradictions, ..reading };
                    // Nothing but the numbers says that tokens come first.
                    let is_guess = format == Some(QkvFormat::Sbhd) && !is_format_told;
                    let is_tentative = is_guess || is_shifted || found.is_tentative;
                    let found = Reading { is_tentative, ..found };
                    if let Some(mask) = &found.mask {
                        all.extend(says_stated_bias(&found, mask)?);
                    }
                    all.push(biased(found)?);
                }
                Err(error) => refused = refused.or(Some(error)),
            }
        }
    }
    match refused {
        Some(error) if all.is_empty() => Err(error),
        _ => {
            all.sort_by_key(|reading| reading.is_trivial);
            Ok(all)
        }
    }
}

/// What the sides of a window contradict, where another one was stated.
fn against(
    (name, [left, right]): &(String, [usize; 2]),
    settings: &Settings,
) -> Option<Contradiction> {
    let both = [settings.window?.to_string(), format!("{left},{right}")];
    Some(Contradiction::of("window", Name::MaskedScores, both, name))
}

/// A draft with what its queries, keys and values were found to be: what is a cache by its name may be all the keys.
fn matched(own: Draft, found: &[Match]) -> Draft {
    let taken = |name: &str| found.iter().any(|taken| taken.tensor == name);
    let (caches, others): (Vec<Match>, Vec<Match>) =
        own.matches.into_iter().partition(|other| taken(&other.step));
    let by_its_name = |found: &Match| {
        let cache = caches.iter().find(|cache| cache.step == found.tensor);
        let tensor = cache.map_or_else(|| found.tensor.clone(), |cache| cache.tensor.clone());
        Match { tensor, ..found.clone() }
    };
    let matches = others.into_iter().chain(found.iter().map(by_its_name)).collect();
    Draft { matches, ..own }
}

/// Of several ways to read numbers in few bits those that stand for what was written in them, where the file has both.
fn as_written(readings: Vec<Qkv>, record: &Record) -> Result<Vec<Qkv>> {
    let differing = |reading: &Qkv| {
        let mut others = record.clone();
        let taken = |name: &str| reading.matches.iter().any(|taken| taken.tensor == name);
        others.entries.retain(|entry| !taken(&entry.name));
        let (_, differs) = written(&mut others, reading)?;
        Ok((reading.start == Start::Heads).then_some(differs.len()))
    };
    let counts: Vec<Option<usize>> = readings.iter().map(differing).collect::<Result<_>>()?;
    // In another order of axes, what was written may have another shape, and is not compared.
    let formats: Vec<QkvFormat> = readings.iter().map(|reading| reading.format).collect();
    let is_kept = |at: usize| {
        let alike = formats.iter().zip(&counts).filter(|(format, _)| **format == formats[at]);
        counts[at].is_none() || counts[at] == alike.filter_map(|(_, count)| *count).min()
    };
    let kept = readings.into_iter().enumerate().filter(|(at, _)| is_kept(*at));
    Ok(kept.map(|(_, own)| own).collect())
}

/// Takes the weights and biases of norms of heads that stand in a kernel's file under the names that modules have them by.
fn take_head_norms(draft: &mut Draft) {
    for step in [Name::WQNorm, Name::WKNorm, Name::BQNorm, Name::BKNorm] {
        let row = step.row();
        let is_it = |entry: &&mut Entry| {
            let ends = |stored: &&str| {
                let before = entry.name.strip_suffix(*stored);
                before.is_some_and(|before| before.is_empty() || before.ends_with(['.', '/']))
            };
            entry.tensor.rank() == 1 && row.stored.iter().any(ends)
        };
        let Some(entry) = draft.record.entries.iter_mut().find(is_it) else { continue };
        draft.matches.push(Match::as_it_is(row.name, &entry.name));
        row.name.clone_into(&mut entry.name);
    }
}

/// How many queries and keys there are, of keys as they are or in few bits.
fn tokens(record: &Record) -> Option<[usize; 2]> {
    let count = |name: Name| record.tensor(name.as_str())?.dims().get(2).copied();
    let keys = [Name::KHeads, Name::KQuantized].into_iter().find_map(count);
    Some([count(Name::QHeads)?, keys?])
}

/// Whether keys stand in a cache, as lengths or few bits say, and are more than the queries: kernels that read it align a
/// causal mask to the last key.
fn is_behind_cache(draft: &Draft) -> bool {
    let Draft { record, settings, matches, evidence, .. } = draft;
    let says_lengths = matches.iter().any(|taken| taken.step == "lengths")
        || evidence.iter().any(|found| found.key == "lengths");
    let is_in_few_bits = record.tensor(Name::KQuantized.as_str()).is_some();
    (says_lengths || is_in_few_bits)
        && settings.mask == Some(Mask::Causal)
        && settings.causal_align.is_none()
        && tokens(record).is_some_and(|[queries, keys]| queries < keys)
}

/// Takes how many keys of padding stand before those of each item into the mask of keys.
fn take_left_padding(draft: &mut Draft) -> Result<()> {
    let keys = tokens(&draft.record).map(|[_, keys]| keys);
    let Draft { record, settings, matches, evidence, .. } = draft;
    let is_it = |entry: &Entry| is_called(&entry.name, LEFT_PADDING);
    let (Some(at), Some(keys)) = (record.entries.iter().position(is_it), keys) else {
        return Ok(());
    };
    let firsts = numbers(&record.entries[at].tensor)?.into_iter().map(whole);
    let Some(firsts) = firsts.collect::<Option<Vec<usize>>>() else { return Ok(()) };
    let ends = settings.lengths.clone().unwrap_or_else(|| vec![keys; firsts.len()]);
    let row = |(first, end): (&usize, &usize)| -> String {
        (0..keys).map(|key| if (*first..*end).contains(&key) { '1' } else { '0' }).collect()
    };
    let rows: Vec<String> = firsts.iter().zip(&ends).map(row).collect();
    let entry = record.entries.remove(at);
    if let Some(stated) = &settings.key_mask {
        // The lengths hide what is behind them, whatever the mask says of it.
        let is_said = |((own, row), end): ((&String, &String), &usize)| {
            let seen = own.chars().enumerate().map(|(key, own)| if key < *end { own } else { '0' });
            seen.eq(row.chars())
        };
        if !stated.iter().zip(&rows).zip(&ends).all(is_said) {
            evidence.push(Evidence::of("key_mask", Name::MaskedScores, &entry, rows.join(",")));
        }
        return Ok(());
    }
    settings.lengths = None;
    settings.key_mask = Some(rows);
    let found = Match::as_it_is("key_mask", entry.name);
    let how = tr!("{count} keys of padding come first", count = listed(&firsts));
    matches.push(found.read(how));
    Ok(())
}

/// A causal mask whose last query stands at the last key of each item's length.
struct Aligned {
    mask: FoundMask,
    /// Whether it hides what lies before a window, too.
    has_window: bool,
    /// How many queries and keys there are.
    size: (usize, usize),
}

impl Aligned {
    /// What a mask contradicts that is aligned to the last slot of a cache, and not to the lengths.
    fn against_cache(&self, settings: &Settings) -> Option<Contradiction> {
        let (rows, keys) = self.size;
        let stated = settings.lengths.as_ref().filter(|_| rows < keys)?;
        let stated = listed(stated);
        let summary = tr!(
            "the lengths are {stated}, and the causal mask ends with the cache, at key {keys}, not with each length",
            stated,
            keys
        );
        let (setting, step, recorded) = ("lengths", Name::CausalMask, keys.to_string());
        Some(Contradiction::told(setting, step, [stated, recorded], summary))
    }
}

/// A causal mask as kernels have it that decode from a cache with empty slots, or a window with these sides; nothing where the
/// settings say the same.
fn aligned_to_lengths(
    draft: &Draft,
    sides: Option<&(String, [usize; 2])>,
) -> Result<Option<Aligned>> {
    let Draft { record, settings, .. } = draft;
    let items = record.tensor(Name::QHeads.as_str()).and_then(|own| own.dims().first().copied());
    let (Some(items), Some([rows, keys])) = (items, tokens(record)) else { return Ok(None) };
    let lengths = settings.lengths.clone().or_else(|| sides.map(|_| vec![keys; items]));
    let Some(lengths) = lengths.filter(|all| all.len() == items) else { return Ok(None) };
    let is_causal = settings.mask == Some(Mask::Causal)
        && settings.causal_align != Some(CausalAlign::TopLeft)
        && settings.attn_mask.is_none();
    let window = settings.window.filter(|_| rows < keys);
    let is_one = rows < 2 && window.is_none();
    if sides.is_none() && (!is_causal || is_one || lengths.iter().all(|own| *own == keys)) {
        return Ok(None);
    }
    if lacking(items.saturating_mul(rows).saturating_mul(keys) as u128).is_some() {
        return Ok(None);
    }
    let right = sides.map_or(0, |(_, [_, right])| *right);
    let window = sides.map(|(_, [left, _])| left.saturating_add(1)).or(window);
    let documents = |own: &Option<Segments>| own.as_ref().map(Segments::rows);
    let queries = documents(&settings.segments);
    let key_rows = documents(&settings.key_segments).or(queries.clone());
    let mut seen = Vec::with_capacity(items * rows * keys);
    for (item, length) in lengths.iter().enumerate() {
        // Documents are aligned each by itself, and see no other anyway.
        let of_item = |all: &Vec<Vec<(usize, usize)>>| all.get(item).or(all.first()).cloned();
        let spans: Vec<_> = match (&queries, &key_rows) {
            (Some(queries), Some(keys)) => {
                let own = of_item(queries).unwrap_or_default();
                own.into_iter().zip(of_item(keys).unwrap_or_default()).collect()
            }
            _ => vec![((0, rows), (0, *length))],
        };
        let cell = |row: usize, key: usize| {
            let is_own = |((first, end), _): &&((usize, usize), (usize, usize))| {
                (*first..*end).contains(&row)
            };
            let Some(((first, end), (start, stop))) = spans.iter().find(is_own) else { return 1 };
            if !(*start..*stop).contains(&key) {
                return u8::from(queries.is_some());
            }
            // How far the query stands behind the first key, plus the number of queries.
            let (place, key) = (stop - start + row - first, key - start + end - first);
            let is_in = window.is_none_or(|window| key.saturating_add(window) > place);
            u8::from(key <= place.saturating_add(right) && is_in)
        };
        for row in 0..rows {
            seen.extend((0..keys).map(|key| cell(row, key)));
        }
    }
    let mask = Tensor::from_vec(seen, (items, 1, rows, keys), &Device::Cpu)?;
    let (name, how) = if let Some((name, [left, right])) = sides {
        (name.as_str(), tr!("{left} keys before each query and {right} behind it", left, right))
    } else {
        let how = tr!("the last query stands at the last key of each length");
        (tr!("causal up to each length"), how.to_owned())
    };
    let mask = FoundMask::of(name, mask, how);
    Ok(Some(Aligned { mask, has_window: window.is_some(), size: (rows, keys) }))
}

/// The ways to understand a file whose keys and values stand in the pages of a cache.
pub fn of_pages(draft: &Draft, all: Vec<Paged>) -> Result<Vec<Reading>> {
    let read = |Paged { qkv, segments, key_segments, written }: Paged| {
        let mut own = draft.clone();
        let named: Vec<String> = qkv.matches.iter().map(|own| own.tensor.clone()).collect();
        own.record.entries.retain(|entry| !named.contains(&entry.name));
        pack(&mut own.record, queries_of(draft, &qkv))?;
        own.matches.extend(take_arguments(&mut own.record, &mut own.settings)?);
        let stated = own.settings.clone();
        own.settings.segments = segments.parse().ok();
        own.settings.key_segments = key_segments.parse().ok();
        let other = other_documents(&stated, &own);
        let [news, counts] = [&own.settings.segments, &own.settings.key_segments]
            .map(|own| own.iter().flat_map(|own| own.0.concat()).collect::<Vec<_>>());
        let spans: Vec<_> = news.iter().copied().zip(counts).collect();
        if unroll_mask(&mut own.record, &spans)? {
            // It keeps the sequences apart itself.
            (own.settings.segments, own.settings.key_segments) = (None, None);
        }
        let (left, differs) = new_keys(&mut own.record, &qkv, written.as_deref(), &news)?;
        own.unmatched.extend(left);
        let mut readings = cores(own, vec![qkv])?;
        for reading in &mut readings {
            reading.contradictions.extend(differs.iter().chain(&other).cloned());
        }
        Ok(readings)
    };
    all.into_iter().map(read).collect::<Result<Vec<_>>>().map(|all| all.concat())
}

/// The lengths of the axes of a file's queries, as it has them.
fn queries_of<'d>(draft: &'d Draft, qkv: &Qkv) -> &'d [usize] {
    let name = qkv.matches.first().map(|own| own.tensor.as_str()).unwrap_or_default();
    draft.record.tensor(name).map_or(&[], Tensor::dims)
}

/// Puts the rows of all items one after the other in what a kernel gave, where the queries came as (item, token, head,
/// `head_dim`) and are read so.
fn pack(record: &mut Record, queries: &[usize]) -> Result<()> {
    let &[items, tokens, heads, _] = queries else { return Ok(()) };
    if tokens < 2 || items < 2 {
        return Ok(());
    }
    for entry in &mut record.entries {
        let own = &entry.tensor;
        let packed = match *own.dims() {
            [i, t, h, _] if [i, t, h] == [items, tokens, heads] => own.flatten(0, 1)?,
            [i, h, t, _] if [i, t, h] == [items, tokens, heads] => {
                own.transpose(1, 2)?.flatten(0, 1)?
            }
            [i, h, t] if [i, t, h] == [items, tokens, heads] => {
                own.transpose(0, 1)?.flatten(1, 2)?
            }
            [i, t, h] if [i, t, h] == [items, tokens, heads] => own.flatten(0, 1)?,
            _ => continue,
        };
        entry.tensor = packed.contiguous()?;
    }
    Ok(())
}

/// What the lengths of a file's sequences say against those that were stated.
fn other_documents(stated: &Settings, own: &Draft) -> Vec<Contradiction> {
    let both = [stated, &own.settings].map(Settings::to_json);
    let other = |key: &'static str| {
        let [stated, recorded] = [&both[0], &both[1]].map(|settings| settings.get(key));
        stated.filter(|_| stated != recorded)?;
        let said = own.evidence.iter().find(|said| said.key == key || said.key == "lengths");
        let tensor = said.map_or("block_table", |said| &said.tensor);
        let both = [told(stated), told(recorded)];
        Some(Contradiction::of(key, Name::MaskedScores, both, tensor))
    };
    ["segments", "key_segments"].into_iter().filter_map(other).collect()
}

/// The orders of axes in which the queries have the lengths that settings and recorded scores or weights state; all if there
/// is none.
pub fn not_denied(readings: Vec<Qkv>, record: &Record, settings: &Settings) -> Vec<Qkv> {
    let cells = of_cells(record).map(|entry| entry.tensor.dims());
    let cells: Vec<&[usize]> = cells.filter(|dims| dims.len() == 4).collect();
    let is_stated = |reading: &Qkv| {
        let queries = reading.tensors.first().map_or(&[][..], |(_, queries)| queries.dims());
        let &[batch, heads, tokens, _] = queries else { return true };
        let agrees =
            |(stated, length): (Option<usize>, usize)| stated.is_none_or(|stated| stated == length);
        let of_settings =
            [(settings.batch, batch), (settings.heads, heads), (settings.seq_len, tokens)];
        of_settings.into_iter().all(agrees)
            && cells.iter().all(|dims| dims.starts_with(&[batch, heads, tokens]))
    };
    let (stated, denied): (Vec<Qkv>, Vec<Qkv>) = readings.into_iter().partition(is_stated);
    if stated.is_empty() { denied } else { stated }
}
