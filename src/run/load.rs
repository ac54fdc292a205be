//! Which files the tensors of a run are read from.

use std::path::Path;

use candle_core::{Device, Tensor};

use super::sources::Sources;
use base::error::{Error, Result};
use config::{AttnMaskTrue, OutputGradient, Place, QkvFormat, Settings, Start};
use file::{Bundle, one_tensor, split_place};
use foreign::{Match, arranged, meanings, read_weights, with_batch};
use program::{Name, Role};

/// The keys and values of a cache; nothing else can be meant.
pub(super) const PAST: [(Name, Name); 2] = [(Name::KPast, Name::KPast), (Name::VPast, Name::VPast)];
/// Those of an earlier layer, which its own dump may call by what they are there.
pub(super) const SHARED: [(Name, Name); 2] =
    [(Name::KShared, Name::KRot), (Name::VShared, Name::VHeads)];

impl Sources {
    /// Reads the files that the settings name: `x`, `memory`, `memory_v`, `q`, `k`, `v`, `g`, `beta`, `weights`, `past`,
    /// `rope_freqs`, `attn_bias` and `attn_mask`.
    ///
    /// # Errors
    /// If a file cannot be read, or does not hold what it should.
    pub fn load(settings: &Settings) -> Result<Self> {
        let mut sources = Self::default();
        sources.bring(Name::X, settings.x.as_ref())?;
        sources.bring(Name::Memory, settings.memory.as_ref())?;
        sources.bring(Name::MemoryV, settings.memory_v.as_ref())?;
        sources.read_qkv(settings)?;
        sources.read_scores(settings)?;
        sources.read_recurrence(settings)?;
        sources.bring(Name::RopeFreqs, settings.rope_freqs.as_ref())?;
        if let Some(place) = &settings.past {
            sources.read_pair(Path::new(&place.0), PAST)?;
        }
        if let Some(place) = &settings.shared_kv {
            sources.read_pair(Path::new(&place.0), SHARED)?;
        }
        if let Some(place) = &settings.weights {
            let weights = read_weights(Path::new(&place.0), settings)?;
            sources.tensors.extend(weights.tensors);
            sources.heads = weights.heads;
            sources.matches.extend(weights.matches);
            sources.files.extend(weights.files);
            sources.unread.extend(weights.unread);
            sources.scales = weights.scales;
        }
        sources.bring(Name::GivenBias, settings.attn_bias.as_ref())?;
        if let (Some(OutputGradient::File(place)), Some(name)) =
            (&settings.d_output, settings.first_gradient())
        {
            sources.bring(name, Some(place))?;
        }
        sources.attn_mask = sources.read(Name::FileMask, settings.attn_mask.as_ref())?;
        // Floats that are added mean no such thing.
        if settings.attn_mask_true == Some(AttnMaskTrue::Block) {
            sources = sources.with_ones_seen()?.unwrap_or(sources);
        }
        Ok(sources)
    }

    /// Takes the tensor of a place as a step.
    fn bring(&mut self, step: Name, place: Option<&Place>) -> Result<()> {
        if let Some(tensor) = self.read(step, place)? {
            let is_input = step.role() == Role::Input;
            self.keep(step, if is_input { with_batch(&tensor)? } else { tensor });
        }
        Ok(())
    }

    /// The tensor of a place that is to be a step.
    fn read(&mut self, step: Name, place: Option<&Place>) -> Result<Option<Tensor>> {
        let Some(Place(place)) = place else { return Ok(None) };
        // A mask is called what its setting is called.
        let name = step.row().file.unwrap_or(step.as_str());
        let (tensor, found) = one_tensor(place, name, |other| meanings(other).contains(&step))?;
        let found = if found.is_empty() { place } else { &found };
        self.matches.push(Match::as_it_is(name, found));
        self.files.push(split_place(place).0);
        Ok(Some(tensor))
    }

    /// Reads the queries, keys and values that the settings name.
    fn read_qkv(&mut self, settings: &Settings) -> Result<()> {
        let places = [settings.q.as_ref(), settings.k.as_ref(), settings.v.as_ref()];
        let format = settings.qkv_format.unwrap_or_default();
        let mut start = settings.start.filter(|start| *start != Start::Inputs);
        for (slot, place) in places.into_iter().enumerate() {
            let Some(Place(text)) = place else { continue };
            let steps = [Start::Projections, Start::Heads].map(|start| start.given()[slot]);
            let name = ["q", "k", "v"][slot];
            let may_be = |other: &str| meanings(other).iter().any(|step| steps.contains(step));
            let (tensor, found) = one_tensor(text, name, may_be)?;
            let (of, tensor) = arranged(name, &tensor, format, start)?;
            start = Some(of);
            let found = if found.is_empty() { text } else { &found };
            let step = of.given()[slot];
            self.take(step, tensor, Match::as_it_is(step.as_str(), found), text);
        }
        Ok(())
    }

    /// Reads what a recurrence has beside queries, keys and values; the tokens stand where they do in those.
    fn read_recurrence(&mut self, settings: &Settings) -> Result<()> {
        let is_turned = settings.qkv_format == Some(QkvFormat::Bshd);
        for (step, place) in [(Name::G, &settings.g), (Name::Beta, &settings.beta)] {
            self.bring(step, place.as_ref())?;
            if let Some(own) = self.tensors.get_mut(&step).filter(|own| is_turned && own.rank() > 2)
            {
                *own = own.transpose(1, 2)?.contiguous()?;
            }
        }
        self.bring(Name::InitialState, settings.initial_state.as_ref())
    }

    /// Takes the scores that the settings state.
    fn read_scores(&mut self, settings: &Settings) -> Result<()> {
        let Some(scores) = &settings.scores else { return Ok(()) };
        let fix = tr!("give one row, such as 112,96, or nested lists, such as [[1,2],[3,4]]");
        let wrong = |what| Error::config(tr!("scores: {what}", what), fix);
        let (numbers, shape) = scores.numbers().map_err(wrong)?;
        self.keep(Name::ScoresRaw, Tensor::from_vec(numbers, &shape, &Device::Cpu)?);
        Ok(())
    }

    /// Adds keys and values that are not of the run's own tokens or layer.
    fn read_pair(&mut self, path: &Path, pair: [(Name, Name); 2]) -> Result<()> {
        let bundle = Bundle::open(path)?;
        let names = || bundle.infos().iter().map(|info| info.name.as_str());
        for (name, heads) in pair {
            let exact = names().find(|other| *other == name.as_str());
            let called = |step: Name| names().find(|other| meanings(other).contains(&step));
            let found = exact.or_else(|| called(name)).or_else(|| called(heads));
            let past = found.map(|found| bundle.tensor(found)).transpose()?.flatten();
            let (Some(found), Some(past)) = (found, past) else {
                let [(keys, _), (values, _)] = pair;
                let what = if keys == Name::KPast { tr!("a cache is") } else { tr!("they are") };
                let fix = tr!(
                    "{what} {keys} and {values}, each (batch, kv_heads, key, head_dim)",
                    what,
                    keys,
                    values
                );
                return Err(Error::file(path, tr!("holds no tensor {name}", name), fix));
            };
            let matched = Match::as_it_is(name.as_str(), found);
            self.take(name, past, matched, &path.to_string_lossy());
        }
        Ok(())
    }
}
