//! What becomes of scores and sinks that the right operations have no number for?

use super::kernels::BLOCKS;
use super::{Grammar, after};
use crate::candidate::cost;
use program::{
    Along, Biasing, Cells, Change, Edit, Kind, Name, Op, Scaling, ScoreSlip, SinkSlip, Slip, Step,
    Weigh,
};

impl Grammar<'_> {
    /// Keys of which the mean is subtracted first: the log-sum-exp lacks what that takes from each row of scores.
    pub(super) fn smoothed_keys(&mut self) {
        let told = tr!(
            "the mean of the keys is subtracted from them (smoothed keys), and what that takes from each row is not added back: q · mean · scale"
        );
        if self.right.step(Name::Lse).is_some() {
            let change = after(Slip::LessMean, &[Name::Scores]);
            self.add(Kind::Omitted, cost::PLAIN, Name::Lse, change, told);
        }
        if self.right.step(Name::Scores).is_some() {
            let change = after(Slip::Weigh(Weigh::LessMean), &[]);
            self.add(Kind::Omitted, cost::PLAIN, Name::Scores, change, told);
        }
        self.smoothed_by_tile();
    }

    /// Keys of which each tile has less its own mean: what that takes from scores differs from tile to tile.
    fn smoothed_by_tile(&mut self) {
        let products = self.products();
        let stated = self.right.parts().and_then(|parts| parts.keys.first()?.first().copied());
        let stated = stated.map(|(first, end)| end - first);
        let keys = self.sizes.keys();
        let sizes = BLOCKS.into_iter().filter(|size| (2..keys).contains(size));
        let sizes = stated.map_or_else(|| sizes.collect(), |size| vec![size]);
        let cost = if stated.is_some() { cost::COMMON } else { cost::RARE };
        for size in sizes {
            for (reader, slot, input) in products.iter().filter(|(_, slot, _)| *slot > 0) {
                let change = Change::before(*slot, Slip::Along(2, Along::LessMean(size)));
                let told = tr!(
                    "each tile of {size} keys has the mean of its own rows of {input} subtracted, not that of all",
                    size,
                    input
                );
                self.add(Kind::Inserted, cost, *reader, change, told);
            }
        }
    }

    /// Sinks that all that reads them takes scaled, or at another head's number.
    pub(super) fn of_sinks(&mut self) {
        if self.right.step(Name::Sinks).is_none() {
            return;
        }
        let (heads, groups) = (self.sizes.heads, self.sizes.kv_heads.max(1));
        let take = |of: &dyn Fn(usize) -> usize| {
            Op::from(Slip::Along(0, Along::Take((0..heads).map(of).collect())))
        };
        let mut all: Vec<(Op, &str)> = vec![
            (take(&|head| heads - 1 - head), tr!("the sinks are those of the heads in reverse")),
            (take(&|head| (head + 1) % heads), tr!("each head has the sink of the next")),
            (take(&|_| 0), tr!("all heads have the sink of the first")),
        ];
        if groups < heads {
            let group = heads / groups;
            all.push((
                take(&|head| head / group),
                tr!("each query head has the sink at its key head's number"),
            ));
            all.push((
                take(&|head| head / group * group),
                tr!("each query head has the sink of the first of its group"),
            ));
            all.push((
                take(&|head| head % groups),
                tr!("each query head has the sink at its number modulo the key heads"),
            ));
        }
        if let Some(factor) = self.scale_at(Name::Scores) {
            all.push((Scaling::By { factor }.into(), tr!("the sinks are multiplied by the scale")));
            all.push((
                Scaling::By { factor: factor.recip() }.into(),
                tr!("the sinks are divided by the scale"),
            ));
        }
        for (factor, told) in [
            (std::f64::consts::LN_2, tr!("the sinks are taken in base 2: log2 e is missing")),
            (std::f64::consts::LOG2_E, tr!("the sinks are multiplied by log2 e")),
        ] {
            all.push((Scaling::By { factor }.into(), told));
        }
        for (op, told) in all {
            let edit = |step: &Step| {
                let slot = self.read(step).iter().position(|read| *read == Name::Sinks)?;
                Some(Edit::new(step.name, Change::Before(slot, op.clone(), Vec::new())))
            };
            let edits: Vec<Edit> = self.right.steps().iter().filter_map(edit).collect();
            let [first, others @ ..] = edits.as_slice() else { return };
            let at = first.at;
            // What one step alone reads is changed there; parts of the keys are not.
            let is_of_parts =
                || self.right.step(at).is_some_and(|step| matches!(step.op, Op::Parted(_)));
            if others.is_empty() && !is_of_parts() {
                return;
            }
            self.add_all(Kind::Axes, cost::PLAIN, edits, at, told);
        }
    }

    pub(super) fn of_scores(&mut self, step: &Step) {
        let read = self.read(step);
        if step.name == Name::Scores && self.right.step(Name::AttnBias).is_none() {
            let first = self.sizes.first_position();
            let change = after(Slip::Scores(ScoreSlip::Alibi { first }), &[]);
            let told = tr!("position biases (ALiBi) are added to it");
            self.add(Kind::Inserted, cost::PLAIN, step.name, change, told);
        }
        if let ([_, mask], Op::Biasing(Biasing::Add)) = (&read[..], &step.op) {
            if let Some(scaled) = self.right.step(Name::Scores) {
                let change = Change::Before(1, scaled.op.clone(), Vec::new());
                let told = tr!("the bias is added before the scaling, and scaled with the scores");
                self.add(Kind::Moved, cost::COMMON, step.name, change, told);
            }
            let cells = [
                (Cells::NotPositive, tr!("what is not above 0")),
                (Cells::Zero, tr!("what is 0")),
                (Cells::NotZero, tr!("what is not 0")),
            ];
            for (cells, which) in cells {
                for fill in [-1e9, f64::NEG_INFINITY] {
                    let slip = Slip::Scores(ScoreSlip::FillWhere(cells, fill));
                    let told = tr!(
                        "{mask} is taken as a boolean mask: {which} blocks ({fill})",
                        mask,
                        which,
                        fill = format!("{fill:e}")
                    );
                    self.add(
                        Kind::Mask,
                        cost::PLAIN,
                        step.name,
                        Change::Replace(slip.into()),
                        told,
                    );
                }
            }
        }
        if read.contains(&Name::Sinks) {
            for slip in SinkSlip::ALL {
                let (kind, told) = slip.told();
                let change = Change::Replace(Slip::Scores(ScoreSlip::Sinks(slip)).into());
                self.add(kind, cost::PLAIN, step.name, change, told);
            }
        }
    }
}
