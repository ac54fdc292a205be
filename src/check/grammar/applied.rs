//! What may be applied where it does not belong: functions, norms, clipping, factors?

use program::{Map, Norm, Op, Scaling, ScoreSlip, Slip};

/// What people apply to tensors that need none of it.
pub fn functions() -> Vec<(Op, String)> {
    let maps = Map::ALL.into_iter().map(|map| (Slip::Map(map).into(), map.name().to_owned()));
    let norms = [
        (tr!("an RMS norm"), Norm::rms(1e-6)),
        (tr!("an RMS norm (ε 1e-5)"), Norm::rms(1e-5)),
        (tr!("an RMS norm (ε 1e-8)"), Norm::rms(1e-8)),
        ("LayerNorm", Norm { is_centred: true, ..Norm::rms(1e-5) }),
        (tr!("LayerNorm (ε 1e-6)"), Norm { is_centred: true, ..Norm::rms(1e-6) }),
        (tr!("an L2 norm"), Norm { is_mean: false, ..Norm::rms(0.0) }),
    ];
    let norms = norms.into_iter().map(|(name, norm)| (norm.into(), name.to_owned()));
    let clips = [1.0, 2.0, 5.0, 10.0, 30.0, 50.0].into_iter();
    let clips =
        clips.map(|limit| (Scaling::Clip { limit }.into(), tr!("clipping at ±{limit}", limit)));
    let sinusoids = [false, true].map(|is_in_halves| {
        (Slip::Sinusoid { is_in_halves }.into(), tr!("a sum with sinusoidal positions").to_owned())
    });
    let factors = [2.0, 0.5]
        .map(|factor| (Scaling::By { factor }.into(), tr!("a factor of {factor}", factor)));
    let caps = [1.0, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0].into_iter().map(|cap| {
        let slip = Slip::Scores(ScoreSlip::Cap { outer: cap, inner: f64::recip(cap) });
        (slip.into(), tr!("a soft cap at {cap}", cap))
    });
    maps.chain(norms).chain(clips).chain(caps).chain(sinusoids).chain(factors).collect()
}
