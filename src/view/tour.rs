//! A tour of a run: what a student would be told at each of its steps, with its own numbers.

use candle_core::{DType, Tensor};

use crate::header::sizes_line;
use crate::label::{fill, token};
use crate::number::brief;
use crate::page::Block;
use crate::trace::is_true;
use base::error::{Result, shown};
use config::{Config, Labels};
use program::{Axis, Cell, Name, Term, Trace};

/// The decimals of its numbers, as those of the tool's tables.
const DECIMALS: usize = 3;

/// So many numbers of a row are told one by one.
const MOST: usize = 8;

/// A stop: a step, and what there is to know of it.
pub struct Stop {
    pub title: &'static str,
    pub text: String,
    /// The number that it tells of.
    pub cell: Cell,
}

impl Stop {
    /// Whether it is at that step.
    pub fn is_at(&self, step: &str) -> bool {
        self.cell.step == step
    }
}

/// The tour, with a command that explains the number of each stop.
///
/// # Errors
/// If candle fails.
pub fn tour_page(trace: &Trace, config: &Config, run: &str) -> Result<Vec<Block>> {
    let stops = stops(trace, config)?;
    let count = stops.len();
    let title = tr!("A tour of multi-head attention in {count} stops", count);
    let mut blocks = vec![Block::Title(title), Block::Fact(sizes_line(config))];
    for (at, stop) in stops.iter().enumerate() {
        let cell = &stop.cell;
        blocks.extend([
            Block::Gap,
            Block::Title(format!("{} · {} · {}", at + 1, stop.title, cell.step)),
            Block::Prose(1, stop.text.clone()),
            Block::Text(1, format!("mha-trace explain '{cell}'{run}")),
        ]);
    }
    Ok(blocks)
}

/// The stops of a run: ten where it goes from X to an output, under a mask and with several heads.
///
/// # Errors
/// If candle fails.
pub fn stops(trace: &Trace, config: &Config) -> Result<Vec<Stop>> {
    let guide = Guide::of(trace, config)?;
    let stops = [
        guide.input()?,
        guide.projections()?,
        guide.heads()?,
        guide.products()?,
        guide.scaling()?,
        guide.masking()?,
        guide.softmax()?,
        guide.looks()?,
        guide.sums()?,
        guide.output()?,
    ];
    Ok(stops.into_iter().flatten().collect())
}

/// What a tour goes by.
struct Guide<'a> {
    trace: &'a Trace,
    config: &'a Config,
    labels: Option<Labels>,
    /// The query and the key of the largest weight that is none of a token to itself.
    pair: [usize; 2],
    /// The query at which the first two heads differ most.
    apart: usize,
}

impl<'a> Guide<'a> {
    fn of(trace: &'a Trace, config: &'a Config) -> Result<Self> {
        let mut guide = Self { trace, config, labels: config.labels(), pair: [0, 0], apart: 0 };
        let (mut largest, mut furthest) = (f64::NEG_INFINITY, 0.0);
        let first = guide.weights(0)?;
        let second = guide.weights(1)?;
        for (query, row) in first.iter().enumerate() {
            // With a cache, keys have been there before the first query.
            let own = (query + row.len()).checked_sub(first.len());
            for (key, weight) in row.iter().enumerate().filter(|(key, _)| Some(*key) != own) {
                if *weight > largest {
                    (largest, guide.pair) = (*weight, [query, key]);
                }
            }
            let other = second.get(query).into_iter().flatten();
            let between: f64 =
                row.iter().zip(other).map(|(left, right)| (left - right).abs()).sum();
            if between > furthest {
                (furthest, guide.apart) = (between, query);
            }
        }
        Ok(guide)
    }

    /// The weights of a head of the first item; nothing where the run has none.
    fn weights(&self, head: usize) -> Result<Vec<Vec<f64>>> {
        let weights = self.trace.step(Name::Weights).map(|step| &step.value);
        let Some(weights) = weights.filter(|weights| weights.rank() == 4) else {
            return Ok(Vec::new());
        };
        if weights.dim(0)? == 0 || weights.dim(1)? <= head {
            return Ok(Vec::new());
        }
        let own = weights.narrow(0, 0, 1)?.narrow(1, head, 1)?.squeeze(0)?.squeeze(0)?;
        Ok(own.to_dtype(DType::F64)?.to_vec2()?)
    }

    /// A number of a step; nothing where it has no such cell.
    fn number(&self, name: Name, index: &[usize]) -> Result<Option<(Cell, String)>> {
        let Some(step) = self.trace.step(name) else { return Ok(None) };
        let is_in = step.axes.rank() == index.len()
            && step.axes.iter().zip(index).all(|((_, size), at)| *at < size);
        if !is_in {
            return Ok(None);
        }
        let cell = Cell { step: name.to_string(), index: index.to_vec() };
        Ok(Some((cell, brief(scalar(&step.value, index)?, DECIMALS))))
    }

    /// A token by its place, and its label if it has one.
    fn place(&self, axis: Axis, at: usize) -> String {
        let sizes = &self.config.sizes;
        let size = if axis == Axis::Key { sizes.all_keys() } else { sizes.query_count() };
        let label = token(self.labels.as_ref(), Some(Name::Weights), (axis, size), 0, at);
        label.map_or_else(|| at.to_string(), |label| format!("{at} ({})", shown(&label)))
    }

    fn input(&self) -> Result<Option<Stop>> {
        let [query, _] = self.pair;
        let Some((cell, value)) = self.number(Name::X, &[0, query, 0])? else { return Ok(None) };
        let sizes = &self.config.sizes;
        let text = tr!(
            "X is the input of the layer: a row of {features} numbers for each of {tokens} tokens, from the embedding or from the layer before ({cell} = {value}). In a trained model, a row says what its token means so far; randomly drawn numbers mean nothing, but the arithmetic is the same. Whoever runs the model chooses how many texts are processed at once (batch {batch}) and how long they are ({tokens} tokens). Whoever builds it chooses once how wide a row is (d_model {d_model}; 512 in the paper).",
            features = sizes.d_in,
            tokens = sizes.seq_len,
            cell,
            value,
            batch = sizes.batch,
            d_model = sizes.d_model
        );
        Ok(Some(Stop { title: tr!("What X is"), text, cell }))
    }

    fn projections(&self) -> Result<Option<Stop>> {
        let [query, _] = self.pair;
        let number = self.number(Name::Q, &[0, query, 0])?;
        let Some((cell, value)) = number.filter(|_| self.config.sizes.latent.is_none()) else {
            return Ok(None);
        };
        let text = tr!(
            "Three learned matrices turn each row of X into a query (what the token looks for), a key (what it can be found by) and a value (the information that it passes on when it is found). {cell} = {value} is row {query} of X times row 0 of w_q: {count} products, added up{bias}. In this layer, training changes only these matrices and w_o.",
            cell,
            value,
            query,
            count = self.config.sizes.d_in,
            bias = if self.trace.step(Name::BQ).is_some() { tr!(", and a bias") } else { "" }
        );
        Ok(Some(Stop { title: tr!("Queries, keys and values"), text, cell }))
    }

    fn heads(&self) -> Result<Option<Stop>> {
        let ([query, _], sizes) = (self.pair, &self.config.sizes);
        let number = self.number(Name::QHeads, &[0, 1, query, 0])?;
        let Some((cell, value)) = number.filter(|_| sizes.latent.is_none()) else {
            return Ok(None);
        };
        let own = sizes.head_dim;
        let text = tr!(
            "One softmax gives a query one set of weights, so one head looks for one thing at a time. That is why the {width} features of q, k and v are split into {heads} heads of {own}. All heads do the same computation, each with its own numbers, at about the cost of one head. The number of heads is a choice; d_k = d_model / H follows from it, unless it is stated. The paper writes head_i = Attention(Q · W_i^Q, K · W_i^K, V · W_i^V); {inputs}. w_q holds the W_i^Q of all heads, one below the other: head 1 is rows {own} to {last} of w_q, so {cell} = {value} is q[0,{query},{own}].",
            width = sizes.heads * own,
            heads = sizes.heads,
            inputs = if sizes.is_cross {
                tr!("here Q is X, and K and V are the second input")
            } else {
                tr!("here Q, K and V are all X")
            },
            own,
            last = 2 * own - 1,
            cell,
            value,
            query
        );
        Ok(Some(Stop { title: tr!("Why several heads"), text, cell }))
    }

    fn products(&self) -> Result<Option<Stop>> {
        let ([query, key], sizes) = (self.pair, &self.config.sizes);
        let number = self.number(Name::ScoresRaw, &[0, 0, query, key])?;
        let Some((cell, value)) = number else { return Ok(None) };
        let text = tr!(
            "How well a query matches a key is one number: their {count} features, multiplied pair by pair and added up. For query {query} and key {key} it is {cell} = {value}. Each query is compared with each key, {queries} × {keys} times in each head: twice as many tokens make four times as many scores.",
            count = sizes.key_dim(),
            query = self.place(Axis::Query, query),
            key = self.place(Axis::Key, key),
            cell,
            value,
            queries = sizes.query_count(),
            keys = sizes.all_keys()
        );
        Ok(Some(Stop { title: tr!("A score for each pair"), text, cell }))
    }

    fn scaling(&self) -> Result<Option<Stop>> {
        let [query, key] = self.pair;
        let raw = self.number(Name::ScoresRaw, &[0, 0, query, key])?;
        let number = self.number(Name::Scores, &[0, 0, query, key])?;
        let (Some((_, raw)), Some((cell, value))) = (raw, number) else { return Ok(None) };
        let formula = self.trace.step(Name::Scores).map(|step| self.trace.formula(step));
        let text = tr!(
            "A sum of d_k products grows like √d_k. Softmax of large numbers gives nearly all the weight to one key, and then the layer hardly learns. So the scores are made smaller again, {formula}: {raw} becomes {cell} = {value}.",
            formula = formula.unwrap_or_default(),
            raw,
            cell,
            value
        );
        Ok(Some(Stop { title: tr!("Why they are scaled"), text, cell }))
    }

    fn masking(&self) -> Result<Option<Stop>> {
        let (Some(step), Some(mask)) =
            (self.trace.step(Name::MaskedScores), self.trace.mask_of_scores())
        else {
            return Ok(None);
        };
        let shape = step.axes.shape();
        let (&[_, _, queries, keys], Some(fill)) = (&shape[..], fill(step)) else {
            return Ok(None);
        };
        let is_blocked = |query, key| is_true(&mask.value, &[0, 0, query, key]);
        let mut blocked = Vec::new();
        for query in 0..queries {
            for key in 0..keys {
                blocked.extend(is_blocked(query, key)?.then_some((query, key)));
            }
        }
        let (query, key) = blocked.first().copied().unwrap_or_default();
        let seen = |row: usize| keys - blocked.iter().filter(|(query, _)| *query == row).count();
        let Some((cell, _)) = self.number(step.name, &[0, 0, query, key])? else {
            return Ok(None);
        };
        let text = tr!(
            "A model that predicts the next token must not see that token, and padding has no meaning. The mask blocks {count} of the {all} pairs: their scores are replaced by {fill}, which softmax turns into 0. Query {first} sees {few} of the keys, and query {last} sees {many}.",
            count = blocked.len(),
            all = queries * keys,
            fill,
            first = self.place(Axis::Query, 0),
            few = seen(0),
            last = self.place(Axis::Query, queries.saturating_sub(1)),
            many = seen(queries.saturating_sub(1))
        );
        Ok(Some(Stop { title: tr!("Who may see whom"), text, cell }))
    }

    fn softmax(&self) -> Result<Option<Stop>> {
        let [query, key] = self.pair;
        let number = self.number(Name::Weights, &[0, 0, query, key])?;
        let Some((cell, value)) = number else { return Ok(None) };
        let weights = self.weights(0)?;
        let row = weights.get(query).filter(|row| row.len() <= MOST);
        let row = row.map(|row| {
            let row: Vec<String> = row.iter().map(|weight| brief(*weight, DECIMALS)).collect();
            tr!(" The whole row is {row}.", row = row.join(", "))
        });
        let text = tr!(
            "Softmax turns each row of scores into shares: the exp of each score, divided by the sum of all of them. So none is negative, and a row sums to 1. Query {query} gives key {key} {cell} = {value} of its attention.{row}",
            query = self.place(Axis::Query, query),
            key = self.place(Axis::Key, key),
            cell,
            value,
            row = row.unwrap_or_default()
        );
        Ok(Some(Stop { title: tr!("Scores become weights"), text, cell }))
    }

    fn looks(&self) -> Result<Option<Stop>> {
        let most = |head| -> Result<Option<(usize, String)>> {
            let weights = self.weights(head)?;
            let row = weights.get(self.apart).into_iter().flatten().enumerate();
            let most = row.max_by(|(_, left), (_, right)| left.total_cmp(right));
            Ok(most.map(|(key, weight)| (key, brief(*weight, DECIMALS))))
        };
        let (Some((first, of_first)), Some((second, of_second))) = (most(0)?, most(1)?) else {
            return Ok(None);
        };
        let cell = Cell { step: Name::Weights.to_string(), index: vec![0, 1, self.apart, second] };
        let text = tr!(
            "Heads look at different things. Query {query} gives the most weight to key {first} in head 0 ({of_first}), and to key {second} in head 1 ({of_second}). In a trained model, one head may look at the word before, another at the noun that a verb belongs to; with only one head, both would share one row of weights.",
            query = self.place(Axis::Query, self.apart),
            first = self.place(Axis::Key, first),
            of_first,
            second = self.place(Axis::Key, second),
            of_second
        );
        Ok(Some(Stop { title: tr!("What each head looks at"), text, cell }))
    }

    fn sums(&self) -> Result<Option<Stop>> {
        let [query, _] = self.pair;
        let number = self.number(Name::HeadOutputs, &[0, 0, query, 0])?;
        let Some((cell, value)) = number else { return Ok(None) };
        let n = |value| brief(value, DECIMALS);
        let product = |term: &Term| {
            let factors = term.0.iter().map(|factor| n(factor.value));
            factors.collect::<Vec<_>>().join(" · ")
        };
        let terms = self.trace.explain(&cell)?.terms;
        let sum = (terms.len() <= MOST).then(|| terms.iter().map(product).collect::<Vec<_>>());
        let sum = sum.map(|sum| tr!(" = {sum}", sum = sum.join(" + "))).unwrap_or_default();
        let text = tr!(
            "What a query gets from a head is the sum of the values of the keys, each times its weight: {cell}{sum} = {value}. A key with weight 0 contributes nothing; if one weight is near 1, the query gets little more than that value.",
            cell,
            sum,
            value
        );
        Ok(Some(Stop { title: tr!("The weighted sum of the values"), text, cell }))
    }

    fn output(&self) -> Result<Option<Stop>> {
        let [query, _] = self.pair;
        let number = self.number(Name::Output, &[0, query, 0])?;
        let (Some((cell, value)), Some(concat)) = (number, self.trace.step(Name::Concat)) else {
            return Ok(None);
        };
        let text = tr!(
            "The results of all heads are put side by side, {width} numbers for each token, and w_o mixes them: without it, no head would use the result of another. The output has a row for each token, like X ({cell} = {value}). It is added to X, and the sum is the X of the next layer. Row {query} of X was about one token; this row is what that token found in the tokens that it looked at. After the last layer, the next token is predicted from such rows.",
            width = concat.axes.last_size(),
            cell,
            value,
            query
        );
        Ok(Some(Stop { title: tr!("What the output is for"), text, cell }))
    }
}

/// One number of a tensor.
fn scalar(values: &Tensor, index: &[usize]) -> Result<f64> {
    let mut cell = values.clone();
    for at in index {
        cell = cell.narrow(0, *at, 1)?.squeeze(0)?;
    }
    Ok(cell.to_dtype(DType::F64)?.to_scalar()?)
}
