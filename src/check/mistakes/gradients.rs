//! What do people get wrong in derivatives?

use super::Sibling;
use program::{CapSlip, Change, Gradient, GradientSlip, Kind, Norm, NormSlip, Slip, SoftmaxSlip};

pub fn siblings(own: &Gradient) -> Vec<Sibling> {
    let other =
        |slip: GradientSlip, told: &str| Sibling::new(Slip::Gradient(slip), Kind::Replaced, told);
    match own {
        Gradient::Softmax => {
            let slip = |slip: SoftmaxSlip| other(GradientSlip::Softmax(slip), slip.told());
            SoftmaxSlip::ALL.into_iter().map(slip).collect()
        }
        Gradient::SoftCap { cap } => {
            let slip = |slip: CapSlip| other(GradientSlip::Cap(slip, *cap), slip.told());
            CapSlip::ALL.into_iter().map(slip).collect()
        }
        Gradient::Norm(norm) => {
            let slip = |slip: NormSlip| other(GradientSlip::Norm(slip, norm.clone()), slip.told());
            let slips = NormSlip::ALL.into_iter().filter(|own| own.differs(norm)).map(slip);
            // Gemma's weights are 1 + w.
            let unshifted = (norm.offset != 0.0).then(|| {
                let told = tr!("the norm's weight is w where 1 + w was meant");
                let plain = Gradient::Norm(Norm { offset: 0.0, ..norm.clone() });
                Sibling::new(plain, Kind::Replaced, told)
            });
            slips.chain(unshifted).collect()
        }
        Gradient::Table { .. } | Gradient::Picked { .. } => {
            let mut other = own.clone();
            if let Gradient::Table { is_last, .. } | Gradient::Picked { is_last, .. } = &mut other {
                *is_last = !*is_last;
            }
            let told =
                tr!("each pair overwrites what others of its bucket gave: they are not added up");
            vec![Sibling::new(other, Kind::Replaced, told)]
        }
        Gradient::NormWeight { norm, axes } => {
            // Raised to 0, the root is 1.
            let (norm, axes) = (Norm { power: 0.0, ..norm.clone() }, axes.clone());
            let told = tr!("it is of numbers that are not normed");
            let change = Change::Replace(Gradient::NormWeight { norm, axes }.into());
            vec![Sibling { change, kind: Kind::Omitted, told: told.to_owned() }]
        }
        Gradient::Product(_)
        | Gradient::Collect(_)
        | Gradient::Back { .. }
        | Gradient::Sinks
        | Gradient::Clip { .. }
        | Gradient::Gate { .. }
        | Gradient::Pairs(_) => Vec::new(),
    }
}
