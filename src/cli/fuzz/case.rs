//! What is a case of the sweep: its settings, its numbers, and its file?

use candle_core::{DType, Device, Tensor};

use super::rows::{EMPTY, Kind, Length, Numbers, ROWS, Row, Takes};
use ::run::{Run, Sources, to_record};
use base::error::{Result, refuse};
use config::{CausalAlign, Config, End, Mask, OutputGradient, QkvFormat, Seed, Settings, Start};
use file::{Entry, Record};
use program::{Fill, Name};
use torch::{Generator, draw};

/// The seed of a sweep that states none.
const SEED: u64 = 0;

/// A case: a row in a type.
#[derive(Debug, Clone)]
pub struct Case {
    /// The row's name.
    pub row: String,
    /// The type of the inputs.
    pub kind: Kind,
    /// The numbers.
    pub numbers: Numbers,
    /// What the kernel takes beside q, k and v.
    pub takes: Option<Takes>,
    /// What its run states.
    pub settings: Settings,
    /// What it resolves to.
    pub config: Config,
    /// What is given to its run: the heads' queries, keys and values, a mask, and the gradient of the output.
    pub given: Vec<Entry>,
}

/// The steps that a kernel gets, and what they are called in its file.
const NAMES: [(Name, &str); 3] = [(Name::QHeads, "q"), (Name::KHeads, "k"), (Name::VHeads, "v")];

impl Case {
    /// Its name, and that of its files.
    pub fn name(&self) -> String {
        format!("{}-{}", self.row, self.kind)
    }

    /// Batch items, heads, heads of keys and values, queries, keys, features of a head.
    pub fn sizes(&self) -> [usize; 6] {
        let sizes = &self.config.sizes;
        let Settings { head_dim, .. } = self.settings;
        let head_dim = head_dim.unwrap_or_default();
        [sizes.batch, sizes.heads, sizes.kv_heads, sizes.seq_len, sizes.keys(), head_dim]
    }

    /// Whether the causal mask is at work.
    pub fn is_causal(&self) -> bool {
        self.settings.mask == Some(Mask::Causal)
    }

    /// Whether a query has no key: by lengths or a mask, or as the causal mask ends at the last of fewer keys.
    pub fn has_empty_rows(&self, settled: &Settings) -> bool {
        let [.., queries, keys, _] = self.sizes();
        let ends_last = settled.causal_align == Some(CausalAlign::BottomRight);
        EMPTY.contains(&&*self.row) || (self.is_causal() && queries > keys && ends_last)
    }

    /// The shape that a step has in the run, as (batch, head, token, feature).
    pub fn shape(&self, step: Name) -> Vec<usize> {
        let [batch, heads, kv_heads, queries, keys, head_dim] = self.sizes();
        match step {
            Name::Lse => vec![batch, heads, queries],
            step if [Name::KHeads, Name::VHeads].iter().any(|own| own.gradient() == step) => {
                vec![batch, kv_heads, keys, head_dim]
            }
            _ => vec![batch, heads, queries, head_dim],
        }
    }

    /// The file that a kernel reads: q, k, v in the order of axes that it wants, and what else it takes.
    pub fn inputs(&self, format: QkvFormat) -> Result<Record> {
        let mut entries = Vec::new();
        for Entry { name, tensor, .. } in &self.given {
            let theirs = NAMES.iter().find(|(own, _)| own.as_str() == name);
            let entry = match theirs {
                Some((_, theirs)) => Entry::of(*theirs, turned(tensor, format)?),
                None if *name == Name::HeadOutputs.gradient().as_str() => {
                    Entry::of("d_out", turned(tensor, format)?)
                }
                // In files of a run true blocks; for kernels it attends.
                None => Entry::of("attn_mask", tensor.eq(0u8)?),
            };
            entries.push(entry);
        }
        if let Some(lengths) = self.settings.lengths.as_ref().filter(|_| self.takes.is_some()) {
            let lengths = lengths.iter().map(|length| i64::try_from(*length).unwrap_or(i64::MAX));
            let lengths: Vec<i64> = lengths.collect();
            let count = lengths.len();
            entries.push(Entry::of("lengths", Tensor::from_vec(lengths, count, &Device::Cpu)?));
        }
        let config = Settings { qkv_format: Some(format), ..self.settings.clone() };
        Ok(Record { config: Some(config), entries })
    }

    /// The record of what a kernel made of it, under what was settled.
    pub fn record(&self, settled: &Settings, made: Vec<Entry>) -> Record {
        let mut config = Settings::from(&self.config);
        let [.., queries, keys, _] = self.sizes();
        if self.is_causal() && queries != keys {
            config.causal_align = settled.causal_align.or(config.causal_align);
        }
        if self.takes == Some(Takes::AttnMask) {
            config.mask = Some(Mask::Recorded);
        }
        config.empty_rows = settled.empty_rows.or(config.empty_rows);
        config.mask_fill = settled.mask_fill.or(config.mask_fill);
        config.lse = made.iter().any(|entry| entry.name == Name::Lse.as_str()).then_some(true);
        Record { config: Some(config), entries: self.given.iter().cloned().chain(made).collect() }
    }
}

/// A tensor (batch, head, token, feature) in another order of axes; the same again turns it back.
pub fn turned(tensor: &Tensor, format: QkvFormat) -> Result<Tensor> {
    Ok(match format {
        QkvFormat::Bshd => tensor.transpose(1, 2)?.contiguous()?,
        _ => tensor.clone(),
    })
}

/// What is asked for.
pub struct Asked {
    /// What all cases have, unless their row says otherwise.
    pub base: Settings,
    /// The tokens in a tile of the kernel.
    pub tile: usize,
    /// The types, in order.
    pub kinds: Vec<Kind>,
    /// What the kernel takes beside q, k and v.
    pub takes: Vec<Takes>,
    /// The rows to be left out, and those that alone are wanted.
    pub skip: Vec<String>,
    /// See above; empty for all.
    pub only: Vec<String>,
    /// How many rows there are to be: beyond those of the table, of drawn sizes.
    pub rows: Option<usize>,
}

impl Asked {
    /// The cases, row by row; the caller's own numbers first.
    pub fn cases(&self) -> Result<Vec<Case>> {
        let seed = self.base.seed.map_or(SEED, |seed| seed.0);
        let (own, base) = self.own()?;
        let mut rows: Vec<(String, Row)> =
            ROWS.iter().map(|row| (row.name.to_owned(), *row)).collect();
        rows.retain(|(_, row)| row.takes.is_none_or(|takes| self.takes.contains(&takes)));
        let mut generator = Generator::new(seed);
        let more = self.rows.unwrap_or_default().saturating_sub(rows.len());
        rows.extend((1..=more).map(|at| (format!("drawn-{at}"), drawn(&mut generator))));
        rows.truncate(self.rows.unwrap_or(usize::MAX));
        let names: Vec<String> = own
            .iter()
            .map(|case| case.row.clone())
            .chain(rows.iter().map(|(name, _)| name.clone()))
            .collect();
        if let Some(unknown) = self.only.iter().chain(&self.skip).find(|name| !names.contains(name))
        {
            let what = tr!("no case is called {unknown}", unknown = base::error::quoted(unknown));
            let names = base::lang::list(&names);
            return refuse(what, tr!("the cases are {names}", names));
        }
        let is_wanted = |name: &str| {
            let is_named = |names: &[String]| names.iter().any(|own| own == name);
            (self.only.is_empty() || is_named(&self.only)) && !is_named(&self.skip)
        };
        let mut cases: Vec<Case> = own.into_iter().filter(|case| is_wanted(&case.row)).collect();
        for (name, row) in rows.iter().filter(|(name, _)| is_wanted(name)) {
            for kind in &self.kinds {
                cases.push(made(name, *row, *kind, &base, self.tile)?);
            }
        }
        if cases.is_empty() {
            return refuse("every case is left out", "leave out fewer");
        }
        Ok(cases)
    }

    /// The case of the caller's own numbers, if any are given, and what is stated of all others, which have its heads.
    fn own(&self) -> Result<(Option<Case>, Settings)> {
        let core = Settings {
            start: Some(Start::Heads),
            end: Some(End::Heads),
            mask: Some(self.base.mask.unwrap_or(Mask::None)),
            mask_fill: Some(self.base.mask_fill.unwrap_or(Fill(f64::NEG_INFINITY))),
            d_output: self.base.backward.map(|_| OutputGradient::Randn),
            seed: Some(self.base.seed.unwrap_or(Seed(SEED))),
            ..self.base.clone()
        };
        let base = Settings {
            q: None,
            k: None,
            v: None,
            qkv_format: None,
            batch: Some(core.batch.unwrap_or(2)),
            heads: Some(core.heads.unwrap_or(3)),
            head_dim: Some(core.head_dim.unwrap_or(32)),
            ..core.clone()
        };
        if core.q.is_none() {
            return Ok((None, base));
        }
        let sources = Sources::load(&core)?;
        let kind = sources.tensor(Name::QHeads).map_or(DType::F32, Tensor::dtype);
        let kind = Kind::ALL.iter().copied().find(|own| own.dtype() == kind).unwrap_or_default();
        let plain = Settings { q: None, k: None, v: None, qkv_format: None, ..core };
        let own = finished("own", kind, Numbers::Own, None, &plain, sources)?;
        let [_, heads, kv_heads, _, _, head_dim] = own.sizes();
        let base = Settings {
            heads: Some(heads),
            kv_heads: Some(kv_heads),
            head_dim: Some(head_dim),
            ..base
        };
        Ok((Some(own), base))
    }
}

/// A row of sizes that are drawn.
fn drawn(generator: &mut Generator) -> Row {
    let mut one_of = |count: usize| {
        let at = generator.rand(1).first().map_or(0.0, |number| f64::from(*number));
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small and positive"
        )]
        let at = (at * count as f64) as usize;
        at.min(count.saturating_sub(1))
    };
    let mut length = || Length::drawn(one_of(5), one_of(33));
    let (queries, keys) = (length(), length());
    let kv_heads = [1, 2, 3][one_of(3)];
    let heads = kv_heads * [1, 2, 4][one_of(3)];
    let row = Row::drawn(queries, if one_of(2) == 0 { queries } else { keys });
    let row = Row { batch: Some(1 + one_of(3)), heads: Some((heads, kv_heads)), ..row };
    Row { head_dim: Some([16, 24, 32, 64, 80, 96][one_of(6)]), ..row }
}

/// A case of a row, drawn.
fn made(name: &str, row: Row, kind: Kind, base: &Settings, tile: usize) -> Result<Case> {
    let (queries, keys) = (row.tokens.0.of(tile), row.tokens.1.of(tile));
    let mut settings = Settings {
        seq_len: Some(queries),
        kv_len: Some(keys).filter(|keys| *keys != queries),
        batch: row.batch.or(base.batch),
        head_dim: row.head_dim.or(base.head_dim),
        ..base.clone()
    };
    if let Some((heads, kv_heads)) = row.heads {
        (settings.heads, settings.kv_heads) = (Some(heads), Some(kv_heads));
    }
    if row.takes == Some(Takes::Lengths) {
        let last = if EMPTY.contains(&name) { 0 } else { keys.div_ceil(2) };
        settings.lengths = Some(vec![keys, keys.saturating_sub(3).max(1), last]);
    }
    let is_masked = row.takes == Some(Takes::AttnMask);
    if is_masked {
        (settings.mask, settings.causal_align) = (Some(Mask::None), None);
    }
    if queries == keys {
        settings.causal_align = None;
    }
    let config = Run::new(&settings, Sources::default())?.config().clone();
    let mut sources = Sources::default();
    for (step, tensor) in draw(&config)? {
        let tensor = numbers(step, &tensor, row.numbers, &settings)?;
        sources.keep(step, tensor.to_dtype(kind.dtype())?.to_dtype(DType::F32)?);
    }
    if is_masked {
        let mask = some_keys(&settings, queries, keys, EMPTY.contains(&name))?;
        sources = sources.with_mask(mask);
    }
    finished(name, kind, row.numbers, row.takes, &settings, sources)
}

/// A case of what is given to its run.
fn finished(
    row: &str,
    kind: Kind,
    numbers: Numbers,
    takes: Option<Takes>,
    settings: &Settings,
    sources: Sources,
) -> Result<Case> {
    let run = Run::new(settings, sources)?;
    let is_given = |name: &str| {
        let name = Name::in_files(name);
        name.is_some_and(|name| {
            Start::Heads.given().contains(&name) || name == Name::HeadOutputs.gradient()
        })
    };
    let mut given = to_record(&run.inputs()?, run.config()).entries;
    given.retain(|entry| is_given(&entry.name));
    for entry in &mut given {
        entry.tensor = entry.tensor.to_dtype(kind.dtype())?;
    }
    if takes == Some(Takes::AttnMask)
        && let Some(mask) = run.blocked()?
    {
        given.push(Entry::of(Name::Mask.as_str(), mask));
    }
    let config = run.config().clone();
    let head_dim = given.first().and_then(|entry| entry.tensor.dims().last().copied());
    let settings = Settings { head_dim, ..settings.clone() };
    Ok(Case { row: row.to_owned(), kind, numbers, takes, settings, config, given })
}

/// Drawn queries, keys and values as a row has them.
fn numbers(step: Name, drawn: &Tensor, numbers: Numbers, settings: &Settings) -> Result<Tensor> {
    let (is_query, is_key) = (step == Name::QHeads, step == Name::KHeads);
    if !is_query && !is_key {
        return Ok(drawn.clone());
    }
    let features = settings.head_dim.unwrap_or(1) as f64;
    let scale = settings.scale.filter(|scale| *scale > 0.0).unwrap_or(features.powf(-0.5));
    Ok(match numbers {
        Numbers::Random | Numbers::Own => drawn.clone(),
        Numbers::Large => (drawn * 10.0)?,
        Numbers::Equal => drawn.ones_like()?,
        Numbers::Low => {
            let size = (100.0 / (features * scale)).sqrt();
            (drawn * 0.1)?.affine(1.0, if is_query { size } else { -size })?
        }
    })
}

/// A mask of which about two keys of three are seen, the first of them always, or not by the first two queries.
fn some_keys(settings: &Settings, queries: usize, keys: usize, empty: bool) -> Result<Tensor> {
    let items = settings.batch.unwrap_or(1);
    let seen = |at: usize| {
        let (query, key) = (at / keys % queries, at % keys);
        let is_seen = key == 0 || !(query * 7 + key * 5 + at / (queries * keys)).is_multiple_of(3);
        u8::from(is_seen && !(empty && query < 2))
    };
    let mask: Vec<u8> = (0..items * queries * keys).map(seen).collect();
    Ok(Tensor::from_vec(mask, (items, 1, queries, keys), &Device::Cpu)?)
}
