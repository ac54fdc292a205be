//! The settings of a Hugging Face model, from its `config.json`: what its family's row says of its keys.

mod beside;
mod builds;
mod families;
mod family;
mod family_keys;
mod keys;
mod kinds;
mod latent;
mod refused;
mod rotary;
mod unknown;

use std::path::Path;

use serde_json::Value;

use self::families::FAMILIES;
use self::family::{Family, HeadDim, KeyHeads, Kind, Part, Scale, Sees, Sinks, When};
use self::keys::Config;
use base::error::{Error, Result, quoted};
use config::{AlibiForm, Feature, Mask, Place, RelativeBias, Settings};
use file::read_json;

pub use self::unknown::{Known, known};

/// The settings completed by those of `model_config` and `layer`, if there is one: these stand, and the model says
/// what they leave open.
///
/// # Errors
/// If the file cannot be read, is of no known architecture, or does not have the layer.
pub fn with_model(mut stated: Settings) -> Result<Settings> {
    let before_model = stated.model_config.is_some().then(|| Box::new(stated.clone()));
    let Some(path) = stated.model_config.take() else { return Ok(stated) };
    let (layer, family) = (stated.layer.take(), stated.model_family.take());
    let has_freqs = stated.rope_freqs.is_some();
    let (has_shared, has_bias) = (stated.shared_kv.is_some(), stated.attn_bias.is_some());
    let is_scaled = !has_freqs && stated.rope_scaling.is_none();
    let config = Config::new(Path::new(&path.0), read_json(Path::new(&path.0))?);
    let asked = Asked { family: family.as_deref(), layer, prefix: stated.prefix.as_deref() };
    let mut model = settings(&config, &asked, [has_shared, has_bias])?;
    if has_freqs {
        model.rope_base = None;
    }
    if !is_scaled {
        model.rope_scaling = None;
    }
    // A model says all of these: what it does without, a file below it does not add.
    let without = Some(Feature::ALL.to_vec());
    let mut settings = Settings { without, before_model, ..stated.over(model) };
    // They are of the model: a layer that goes by none does without.
    if settings.rope.is_none() && settings.q_temperature.is_none() {
        settings.positions = None;
    }
    Ok(settings)
}

/// Whether the model that completed the settings adds its residual to what a layer's module gives.
#[must_use]
pub fn adds_residual(settings: &Settings) -> bool {
    let Some(own) = &settings.before_model else { return false };
    let Some(Place(path)) = &own.model_config else { return false };
    let Ok(config) = read_json(Path::new(path)).map(|keys| Config::new(Path::new(path), keys))
    else {
        return false;
    };
    let Ok(text) = config.within("text_config") else { return false };
    family(&config, &text, own.model_family.as_deref(), own.layer)
        .is_ok_and(|family| family.adds_residual)
}

/// What of a model is asked for.
struct Asked<'a> {
    family: Option<&'a str>,
    layer: Option<usize>,
    prefix: Option<&'a str>,
}

/// What a config says of a layer: by the family that is asked for, or that of its `model_type`.
fn settings(config: &Config, asked: &Asked, [has_shared, has_bias]: [bool; 2]) -> Result<Settings> {
    let &Asked { family: asked, layer, prefix } = asked;
    // Models of more than text say it a level down.
    let text = config.within("text_config")?;
    let family = family(config, &text, asked, layer)?;
    let part = part(config, family, layer, prefix)?;
    let config = match part.config {
        "" => text,
        object => config.within(object)?,
    };
    Model { config, family, part, layer, has_shared, has_bias }.settings()
}

/// The family that is asked for, or that of a config's `model_type`, or of the text's within it.
fn family(
    config: &Config,
    text: &Config,
    asked: Option<&str>,
    layer: Option<usize>,
) -> Result<&'static Family> {
    let kind = |config: &Config| match config.get("model_type") {
        None => Ok::<_, Error>(String::new()),
        Some(kind) => {
            let kind = kind.as_str().ok_or_else(|| config.wrong("model_type", tr!("a string")))?;
            Ok(kind.to_owned())
        }
    };
    let named = |kind: &str| FAMILIES.iter().find(|family| family.is(kind));
    if let Some(asked) = asked {
        return named(asked).ok_or_else(|| {
            let what = tr!("model_family {asked} is not known", asked = quoted(asked));
            Error::config(what, "`mha-trace models` lists those that are")
        });
    }
    match (named(&kind(config)?), named(&kind(text)?)) {
        (Some(family), _) | (None, Some(family)) => Ok(family),
        (None, None) => Err(unknown::error(config, text, &kind(config)?, layer)),
    }
}

/// The part of a model that a prefix names; the only one, or that of the decoder where a config says that it is one.
fn part(
    config: &Config,
    family: &Family,
    layer: Option<usize>,
    prefix: Option<&str>,
) -> Result<Part> {
    let [first, others @ ..] = family.parts else { return Err(config.lacks("layers")) };
    let words = |path: &str| -> Vec<String> {
        path.split('.').filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let asked = words(prefix.unwrap_or_default());
    let is_named = |part: &&Part| {
        let path = words(part.path);
        let is = |(own, asked): (&String, &String)| own == asked || own == "{}";
        asked.windows(path.len()).any(|window| path.iter().zip(window).all(is))
    };
    if let Some(part) = family.parts.iter().find(is_named) {
        return Ok(*part);
    }
    let number = layer.unwrap_or(0).to_string();
    let paths: Vec<String> =
        family.parts.iter().map(|part| part.path.replace("{}", &number)).collect();
    let fix = tr!("choose one: `prefix={paths}`", paths = paths.join("` or `prefix="));
    let is_in = |words: &[String], stack: &str| words.iter().any(|word| word == stack);
    for (stack, other) in [("encoder", "decoder"), ("decoder", "encoder")] {
        // Only layers of the other stack are of this build, and say nothing of these.
        let is_apart = family.parts.iter().all(|part| is_in(&words(part.path), other));
        if is_apart && is_in(&asked, stack) && !is_in(&asked, other) {
            let what = tr!("has an attention in its {stack} that is not supported", stack);
            return Err(config.refused(what, &fix));
        }
    }
    // Cross attention stands beside the layers of a stack, which are meant unless it is named.
    let stacks: Vec<&Part> = std::iter::once(first)
        .chain(others.iter().filter(|part| !matches!(part.sees, Sees::Memory)))
        .collect();
    if let [only] = stacks.as_slice() {
        return Ok(**only);
    }
    let what = tr!("has several stacks of layers, and no prefix says which one");
    Err(config.refused(what, &fix))
}

/// A layer of a model.
struct Model<'a> {
    config: Config,
    family: &'a Family,
    part: Part,
    layer: Option<usize>,
    /// Whether keys and values of an earlier layer are given.
    has_shared: bool,
    /// Whether biases of the scores are.
    has_bias: bool,
}

impl Model<'_> {
    fn settings(&self) -> Result<Settings> {
        let (config, family) = (&self.config, self.family);
        let layers = config.first(family.layers)?;
        if let (Some(layer), Some(layers)) = (self.layer, layers)
            && layer >= layers
        {
            let fix = tr!("they are counted from 0 to {layers}", layers = layers.saturating_sub(1));
            return Err(config.refused(tr!("there is no layer {layer}", layer), &fix));
        }
        for when in family.refused.iter().copied() {
            if config.holds(when)? {
                let what = tr!(
                    "{key} is set, which is not supported",
                    key = when.key().unwrap_or_default()
                );
                return Err(config.refused(what, tr!("describe the model by flags")));
            }
        }
        self.refuse_shared(layers)?;
        let is_cross = matches!(self.part.sees, Sees::Memory);
        let (d_model, heads) = self.sizes()?;
        let window = if is_cross { None } else { self.window()? };
        let rope = if is_cross { Settings::default() } else { self.rotary()? };
        let relative = if is_cross { Settings::default() } else { self.relative()? };
        let has_alibi = !is_cross && config.holds(family.alibi)?;
        let chunk = match family.chunk {
            Some(size) if self.kind()? == Kind::Chunked => Some(config.sized(size)?),
            Some(_) | None => None,
        };
        Ok(Settings {
            d_model: Some(d_model),
            d_in: Some(d_model),
            heads: Some(heads),
            kv_heads: self.kv_heads(heads)?,
            head_dim: self.head_dim()?,
            v_head_dim: family.v_head_dim.map(|own| config.sized(own)).transpose()?,
            bias: match family.bias {
                // What a config says is stated, and what it leaves open its weights may tell.
                When::If(name, _) if config.get(name).is_some() => Some(config.holds(family.bias)?),
                bias => config.holds(bias)?.then_some(true),
            },
            packing: self.packing()?,
            mask: Some(self.mask()?),
            window,
            scale: self.scale()?,
            softcap: family.softcap.map_or(Ok(None), |cap| config.number_or(cap))?,
            alibi: has_alibi.then_some(true),
            alibi_form: Some(family.alibi_form)
                .filter(|form| has_alibi && *form != AlibiForm::default()),
            chunk,
            k_eq_v: (config.holds(family.k_eq_v)? && self.kind()? == Kind::Full).then_some(true),
            sinks: match family.sinks {
                Sinks::None => None,
                Sinks::All => Some(true),
                Sinks::Sliding => Some(self.kind()? == Kind::Sliding).filter(|slides| *slides),
            },
            prefix: self.layer.map(|layer| self.part.path.replace("{}", &layer.to_string())),
            ..self
                .norm()?
                .over(self.beside()?)
                .over(self.latent()?)
                .over(rope)
                .over(relative)
                .over(self.disentangled()?)
        })
    }

    /// The model's width and the number of its heads.
    fn sizes(&self) -> Result<(usize, usize)> {
        let wanted = |names: family::Keys| {
            let name = names.iter().find(|name| self.config.get(name).is_some());
            let name = name.ok_or_else(|| self.config.lacks(names.first().unwrap_or(&"")))?;
            self.size_of_layer(name)
        };
        let own = if self.part.heads.is_empty() { self.family.heads } else { self.part.heads };
        Ok((wanted(self.family.width)?, wanted(own)?))
    }

    /// A size; where it is a list, that of the layer.
    fn size_of_layer(&self, name: &str) -> Result<usize> {
        let size = match self.config.get(name) {
            Some(Value::Array(sizes)) => sizes.get(self.this_layer()?),
            value => value,
        };
        let wrong = || self.config.wrong(name, tr!("a whole number from 0 up"));
        self.config.as_size(name, size)?.ok_or_else(wrong)
    }

    fn kv_heads(&self, heads: usize) -> Result<Option<usize>> {
        let config = &self.config;
        let is = |key, otherwise| config.holds(When::If(key, otherwise));
        match self.family.kv_heads {
            KeyHeads::AsQueries => Ok(None),
            KeyHeads::Key(key, otherwise) => match self.own_size(key)? {
                None => config.size_or(key, otherwise),
                own => Ok(own),
            },
            KeyHeads::TwiceIfSliding(key, otherwise) => {
                let own = config.sized((key, otherwise))?;
                Ok(Some(if self.kind()? == Kind::Sliding { 2 * own } else { own }))
            }
            KeyHeads::OneIf(key) => Ok(is(key, true)?.then_some(1)),
            KeyHeads::Falcon if is("new_decoder_architecture", false)? => {
                Ok(Some(config.sized(("num_kv_heads", heads))?))
            }
            KeyHeads::Falcon => Ok(is("multi_query", true)?.then_some(1)),
        }
    }

    fn head_dim(&self) -> Result<Option<usize>> {
        let (width, heads) = self.sizes()?;
        let split = width.checked_div(heads).filter(|head_dim| head_dim * heads == width);
        let stated = match self.family.head_dim {
            HeadDim::Split => None,
            HeadDim::Key(key, otherwise) => {
                self.own_size(key)?.or(self.config.size(key)?).or(otherwise)
            }
            HeadDim::Parts([own, shared]) => {
                Some(self.config.sized(own)?.saturating_add(self.config.sized(shared)?))
            }
            HeadDim::KeyOfFull(key, otherwise, (of_full, full)) => {
                let is_listed = self.config.object(PER_LAYER)?.is_some();
                let (name, otherwise) = match self.own_size(key)? {
                    Some(own) => return Ok(Some(own)),
                    None if !is_listed && self.kind()? == Kind::Full => (of_full, full),
                    None => (key, otherwise),
                };
                Some(self.config.sized((name, otherwise))?)
            }
        };
        Ok(stated.or(split))
    }

    /// A size that the config states of the layer alone.
    fn own_size(&self, key: &str) -> Result<Option<usize>> {
        let Some(layers) = self.config.object(PER_LAYER)? else { return Ok(None) };
        let own = layers.get(&self.this_layer()?.to_string()).and_then(|own| own.get(key));
        self.config.as_size(key, own.filter(|value| !value.is_null()))
    }

    fn packing(&self) -> Result<Option<family::Packing>> {
        for (when, packing) in self.family.packing {
            if self.config.holds(*when)? {
                return Ok(Some(*packing));
            }
        }
        Ok(None)
    }

    fn mask(&self) -> Result<Mask> {
        Ok(match self.part.sees {
            Sees::Past => Mask::Causal,
            Sees::All | Sees::Memory => Mask::None,
            Sees::PastUnlessMasked(when) => {
                if self.config.holds(when)? {
                    Mask::Recorded
                } else {
                    Mask::Causal
                }
            }
            Sees::PastIf(when) => {
                self.refuse_position_embedding()?;
                if self.config.holds(when)? { Mask::Causal } else { Mask::None }
            }
        })
    }

    /// BERT's of older versions can add positions to the scores.
    fn refuse_position_embedding(&self) -> Result<()> {
        match self.config.get("position_embedding_type").and_then(Value::as_str) {
            None | Some("absolute" | "rotary") => Ok(()),
            Some(kind) => {
                let what =
                    tr!("position_embedding_type {kind} adds to the scores", kind = quoted(kind));
                Err(self.config.refused(what, tr!("this is not supported")))
            }
        }
    }

    /// Learned biases of relative positions.
    fn relative(&self) -> Result<Settings> {
        let Some(relative) = self.family.relative else { return Ok(Settings::default()) };
        if !self.config.holds(relative.when)? {
            return Ok(Settings::default());
        }
        if relative.is_grid {
            // The table says of which grid.
            let sort = Some(RelativeBias::Grid);
            return Ok(Settings { relative_bias: sort, ..Settings::default() });
        }
        let size = |size| self.config.sized(size);
        Ok(Settings {
            relative_bias: Some(match self.mask()? {
                Mask::Causal => RelativeBias::OneSided,
                Mask::None | Mask::Recorded => RelativeBias::Bidirectional,
            }),
            relative_buckets: Some(size(relative.buckets)?),
            relative_max_distance: Some(size(relative.max_distance)?),
            ..Settings::default()
        })
    }

    fn scale(&self) -> Result<Option<f64>> {
        let config = &self.config;
        let root = || Ok::<_, Error>(1.0 / root(self.head_dim()?.unwrap_or(1)));
        match self.family.scale {
            Scale::Root => Ok(None),
            Scale::RootYarn => match self.yarn_factor()? {
                Some(factor) => Ok(Some(root()? * factor * factor)),
                None => Ok(None),
            },
            Scale::By(scale) => Ok(Some(scale)),
            // That of a run with the terms itself.
            Scale::RootOfTerms if self.has_terms()? => Ok(None),
            Scale::RootOfTerms => {
                let width = self.head_dim()?.unwrap_or(1).saturating_mul(1 + self.terms().len());
                Ok(Some(1.0 / self::root(width)))
            }
            Scale::RootTimes(key) => match config.number(key)? {
                Some(factor) => Ok(Some(root()? * factor)),
                None => Ok(None),
            },
            Scale::RootOf(key, otherwise) => {
                let scalar = config.number(key)?.unwrap_or(otherwise);
                if scalar > 0.0 {
                    return Ok(Some(scalar.powf(-0.5)));
                }
                Err(config.wrong(key, tr!("a number above 0")))
            }
            Scale::Key(key, otherwise) => Ok(config.number(key)?.or(otherwise)),
            Scale::Gpt2 => self.gpt2_scale(),
        }
    }

    /// GPT-2 can leave its scores unscaled, or divide them by the number of the layer too.
    fn gpt2_scale(&self) -> Result<Option<f64>> {
        let is_scaled = self.config.holds(When::If("scale_attn_weights", true))?;
        let by_layer = self.config.holds(When::If("scale_attn_by_inverse_layer_idx", false))?;
        if is_scaled && !by_layer {
            return Ok(None);
        }
        let head_dim = self.head_dim()?.unwrap_or(1);
        let plain = if is_scaled { 1.0 / root(head_dim) } else { 1.0 };
        let by = if by_layer { (self.this_layer()? + 1) as f64 } else { 1.0 };
        Ok(Some(plain / by))
    }

    fn this_layer(&self) -> Result<usize> {
        let what = tr!("its layers have different kinds of attention");
        self.layer.ok_or_else(|| self.config.refused(what, tr!("say which layer: `layer=N`")))
    }
}

/// What layers have of their own, by their number.
const PER_LAYER: &str = "per_layer_config";

/// √`d_k`.
fn root(head_dim: usize) -> f64 {
    (head_dim as f64).sqrt()
}
