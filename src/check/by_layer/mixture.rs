//! What is there to know of a mixture of experts: how these are chosen and weighed, and what each computes?

use program::Map;

/// How a mixture weighs its experts, and what each of them computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mixture {
    pub routing: Routing,
    pub unit: Unit,
    pub shared: Shared,
    /// Whether the weights multiply what goes into an expert, and not what it gives (Llama 4).
    pub weighs_inputs: bool,
    /// How many times that expert is added.
    pub times: usize,
    /// On how many ranks the experts are counted from 0, each its own; on one where they are counted as they should be.
    pub counted_on: usize,
    /// How many ranks load the parameters of the first one's experts.
    pub loaded_on: usize,
    /// What the routed experts are multiplied by.
    pub scale: f64,
}

/// How experts are chosen and weighed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Routing {
    pub score: Score,
    /// Whether the weights of the chosen experts are made up to 1.
    pub is_normed: bool,
    /// How many experts are chosen for a token.
    pub count: usize,
    /// Whether the correction bias has a part in the choice.
    pub is_corrected: bool,
    /// Whether it has a part in the weights.
    pub has_corrected_weights: bool,
    /// Among which groups of experts the choice is made, where it is not among all.
    pub groups: Option<Groups>,
    /// On how many ranks the weights are made up to 1, each for the experts that it has.
    pub ranks: usize,
}

/// The best groups of experts ("DeepSeek-V2", 2024, section 2.1.3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Groups {
    /// How many groups there are.
    pub all: usize,
    /// How many of them are chosen.
    pub chosen: usize,
    /// A group is as good as the sum of so many of its best experts.
    pub best: usize,
}

/// What an expert computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    pub map: Map,
    /// Whether the two halves of the first projection change places.
    pub is_exchanged: bool,
    /// Whether these stand in turns, number by number.
    pub in_turns: bool,
    /// Whether 1 is added to what is gated.
    pub is_raised: bool,
}

/// What the scores of experts are made by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Score {
    Softmax,
    Sigmoid,
    /// All that are chosen weigh the same.
    Equal,
}

/// What becomes of the expert that all tokens have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shared {
    None,
    Plain,
    Gated,
    /// The gate is taken as it is, without its sigmoid.
    RawGate,
}

impl Groups {
    /// All that so many experts may be chosen by.
    pub fn of(experts: usize) -> Vec<Self> {
        let counts =
            [2, 4, 8].into_iter().filter(|all| experts.is_multiple_of(*all) && experts > *all);
        let chosen = counts.flat_map(|all| (1..all).map(move |chosen| (all, chosen)));
        chosen.flat_map(|(all, chosen)| [1, 2].map(|best| Self { all, chosen, best })).collect()
    }

    /// Whether an expert of these scores is in a group that is chosen.
    pub fn admitted(self, scores: &[f64]) -> Vec<bool> {
        let size = scores.len() / self.all;
        let good = |group: &[f64]| {
            let mut own = group.to_vec();
            own.sort_by(|left, right| right.total_cmp(left));
            own.iter().take(self.best).sum::<f64>()
        };
        let good: Vec<f64> = scores.chunks(size).map(good).collect();
        let mut order: Vec<usize> = (0..good.len()).collect();
        order.sort_by(|left, right| good[*right].total_cmp(&good[*left]));
        order.truncate(self.chosen);
        (0..scores.len()).map(|at| order.contains(&(at / size))).collect()
    }
}

impl Shared {
    /// What becomes of that expert in place of what was meant.
    fn beside(self, meant: Self) -> &'static str {
        match (self, meant) {
            (Self::None, _) => tr!("the shared expert is left out"),
            (Self::RawGate, _) => tr!("the gate of the shared expert is used without its sigmoid"),
            (_, Self::Gated) => tr!("the shared expert is not multiplied by its gate"),
            _ => tr!("the shared expert is multiplied by its gate"),
        }
    }
}

impl Score {
    pub const ALL: [Self; 3] = [Self::Softmax, Self::Sigmoid, Self::Equal];

    fn told(self) -> &'static str {
        match self {
            Self::Softmax => "softmax",
            Self::Sigmoid => "sigmoid",
            Self::Equal => tr!("the same for all"),
        }
    }
}

impl Mixture {
    /// In what a mixture differs from the one that was meant, in words.
    pub fn differences(&self, meant: &Self) -> Vec<String> {
        let mut all = Vec::new();
        let (own, right) = (self.routing, meant.routing);
        let mut add = |differs: bool, told: &dyn Fn() -> String| {
            if differs {
                all.push(told());
            }
        };
        add(own.score != right.score, &|| {
            tr!(
                "the scores of experts are by {own}, not {meant}",
                own = own.score.told(),
                meant = right.score.told()
            )
        });
        add(own.is_normed != right.is_normed, &|| {
            if right.is_normed {
                tr!("the weights of the experts that are chosen are not made up to 1").to_owned()
            } else {
                tr!("the weights of the experts that are chosen are made up to 1").to_owned()
            }
        });
        add(own.count != right.count, &|| {
            tr!(
                "{count} experts are chosen for each token, not {meant}",
                count = own.count,
                meant = right.count
            )
        });
        add(own.is_corrected != right.is_corrected, &|| {
            tr!("the correction bias has no part in the choice of experts").to_owned()
        });
        add(own.has_corrected_weights != right.has_corrected_weights, &|| {
            tr!("the correction bias has a part in the weights of the experts, and not in their choice alone").to_owned()
        });
        add(self.weighs_inputs != meant.weighs_inputs, &|| {
            if meant.weighs_inputs {
                tr!("the weights of experts multiply what these give, not what goes into them")
            } else {
                tr!("the weights of experts multiply what goes into these, not what they give")
            }
            .to_owned()
        });
        let told = |groups: Option<Groups>| match groups {
            Some(Groups { all, chosen, .. }) => {
                tr!("in the best {chosen} of {all} groups", chosen, all)
            }
            None => tr!("among all").to_owned(),
        };
        add(own.groups != right.groups, &|| {
            tr!(
                "experts are chosen {own}, not {meant}",
                own = told(own.groups),
                meant = told(right.groups)
            )
        });
        add(self.unit.map != meant.unit.map, &|| {
            tr!(
                "the experts' activation is {own}, not {meant}",
                own = self.unit.map.name(),
                meant = meant.unit.map.name()
            )
        });
        add(self.unit.is_exchanged != meant.unit.is_exchanged, &|| {
            tr!("the experts' gate and up projection change places").to_owned()
        });
        add(self.unit.in_turns != meant.unit.in_turns, &|| {
            if meant.unit.in_turns {
                tr!("the experts' gate and up projection are taken as halves, and stand in turns")
                    .to_owned()
            } else {
                tr!("the experts' gate and up projection are taken in turns, and are halves")
                    .to_owned()
            }
        });
        add(self.unit.is_raised != meant.unit.is_raised, &|| {
            if meant.unit.is_raised {
                tr!("the experts' up projection is gated without adding 1").to_owned()
            } else {
                tr!("1 is added to the experts' up projection").to_owned()
            }
        });
        add(self.shared != meant.shared, &|| self.shared.beside(meant.shared).to_owned());
        add(self.times != meant.times, &|| {
            tr!("the shared expert is added {count} times", count = self.times)
        });
        // In 16 bits a factor is known no better.
        add((self.scale - meant.scale).abs() > 1e-2, &|| {
            tr!(
                "what the experts give is multiplied by {own}, not {meant}",
                own = self.scale,
                meant = meant.scale
            )
        });
        all.extend(self.on_ranks(meant));
        all
    }

    /// The same of what ranks do that have some of the experts each.
    fn on_ranks(&self, meant: &Self) -> Vec<String> {
        let mut all = Vec::new();
        if self.routing.ranks != meant.routing.ranks {
            all.push(tr!(
                "the weights of the chosen experts are made up to 1 on each of {ranks} ranks by itself, over the experts that it has",
                ranks = self.routing.ranks
            ));
        }
        if self.counted_on != meant.counted_on {
            all.push(tr!(
                "each of {ranks} ranks counts the experts that it has from 0, and takes the tokens of the first rank's experts: the number of its first expert is not subtracted",
                ranks = self.counted_on
            ));
        }
        if self.loaded_on != meant.loaded_on {
            all.push(tr!(
                "each of {ranks} ranks computes its experts with the parameters of the first rank's: the number of its first expert is not added where they are loaded",
                ranks = self.loaded_on
            ));
        }
        all
    }
}
