//! Why are there steps? A sentence or two for each, as one who teaches attention would say it.

use super::name::Name;
use super::role::Role;
use base::lang;

macro_rules! reasons {
    ($($($name:ident)|+ => $why:literal;)+) => {
        impl Name {
            /// Why the step is there, in a sentence or two.
            pub fn why(self) -> &'static str {
                lang::text(match self {
                    $($(Self::$name)|+ => $why,)+
                    Self::Gradient(own) => of_gradient(own.step()),
                })
            }
        }
    };
}

reasons! {
    X => "Each row is one token as a vector: its embedding, or what the layer before made of it. All else is computed from these rows.";
    Memory => "In cross attention the queries look into another sequence: keys and values are projections of this one.";
    MemoryV => "What a token is found by and what it hands on may be of two inputs: values are projections of this one.";
    BiasK | KWithBias => "Learned: a key that every query sees, whatever the tokens. A head that finds nothing among these can look there.";
    BiasV | VWithBias => "Learned: what a query gets that looks at the added key.";
    KWithZero | VWithZero => "A key of zeros has the score 0 and hands on nothing: a head that finds nothing among the tokens can look there.";
    MaskPadded | AttnBiasPadded => "Masks are of tokens. The keys that are added to those get columns of their own, in which nothing is hidden.";
    WQ => "Learned: it turns a token into a query, what the token looks for.";
    WK => "Learned: it turns a token into a key, what a token is found by.";
    WV => "Learned: it turns a token into a value, what a token hands on once it is found.";
    WO => "Learned: it mixes what the heads have found. Without it no head would hear of another.";
    WDq | CQ => "A narrow latent of the token, from which the queries of all heads are made: two small matrices in place of a large one.";
    WDkv | CKv => "A narrow latent of the token, from which the keys and values of all heads are made: the cache need hold nothing else of it.";
    WKr | KR | KRHeads =>
        "Keys made of a latent bear no rotation without being made anew. So one more key, which all heads share, bears the position.";
    KRRot => "The shared key is turned by an angle that grows with its position, so that its dot product with a query sees their distance.";
    CHeads => "In the absorbed order the latent itself is the key and the value, one for all heads: a decoding step reads the cache as it is.";
    QAbsorbed => "q · (W_K c) is (q W_K) · c: the weight that would make keys of every latent is applied once, to the query.";
    KLatent => "The latent says what a token is, and the shared key behind it where it stands: one key for all heads.";
    QJoined => "The query in the latent meets the latent, and the turned features behind it the shared key; one dot product sees both.";
    LatentOutputs => "Latents weighted and added up; the weight that would make values of every one of them is applied to the sum alone.";
    KJoined => "Each head's key says what the token is, and the shared key behind it where it stands; one dot product sees both.";
    BQ | BK | BV | BO | BGate | BDq | BDkv | BKr => "Learned: it is added to every row of the projection, whatever the token.";
    WQNorm | WKNorm | WConcatNorm | WCqNorm | WCkvNorm => "Learned: the norm gives all features the same size, and this gives each its own back.";
    BQNorm | BKNorm => "Learned: it moves each feature after the norm.";
    WGate => "Learned: it tells from a token which features of its output should pass.";
    LambdaQ1 | LambdaK1 | LambdaQ2 | LambdaK2 | Lambda =>
        "Learned: λ says how much of the second weights is subtracted. It is exp(q₁ · k₁) − exp(q₂ · k₂) + λ_init, so that training starts at λ_init.";
    WeightsDiff => "Both heads of a pair give some weight to tokens that do not matter. Where they agree it cancels, and what is left points to what does.";
    WHeadNorm => "Learned: it gives each feature of a head's output its own size after the norm. All heads share it.";
    HeadNorm => "After the subtraction heads differ much in size. The norm brings each to one.";
    HeadScaled => "The factor 1 − λ_init gives gradients the size that they have in a usual Transformer.";
    Sinks => "The weights of a row sum to 1, so that a head must look somewhere. A sink takes the weight that no key deserves.";
    RelativeTable => "Learned: how much each head likes a key at each distance.";
    RopeFreqs => "Each pair of features turns at its own speed: the fast ones tell neighbours apart, the slow ones see far.";
    KShared | VShared =>
        "The last layers of some models look into the keys and values of an earlier one, and so need neither weights nor a cache of their own.";
    VRot => "RoFormer can turn the values too: what a query gets of them then bears their positions.";
    KPast | VPast => "Keys and values of earlier tokens do not change, so they are kept and not computed again.";
    CausalMask => "A model that predicts the next token may not see it: each query sees itself and what came before.";
    WindowMask => "Each query sees its neighbours alone, so that the cost grows with the window, not with the length.";
    ChunkMask => "Each query sees its own chunk alone, so that the cost grows with the chunk, not with the length.";
    KeyMask | LengthMask => "Sequences of a batch differ in length, and the short ones are padded. Padding means nothing and must get no weight.";
    DocumentMask => "Several documents share one row to waste no room, and must not see each other.";
    FileMask | Mask =>
        "It says which keys a query may not see. True blocks; the attention_mask of models' code often means the opposite, 1 for what may be seen. It is broadcast to all heads and, where it can be, to all items.";
    AlibiSlopes => "Each head has its own slope, so that some look near and some far.";
    Alibi => "Attention knows no order by itself. Here far keys lose by their distance, which also holds for lengths never trained on.";
    RelativeBias => "Attention knows no order by itself. Here each distance adds a learned number to the score.";
    GivenBias | FileBias | AttnBias => "What is added to a score favours or disfavours the key before softmax; −∞ blocks it.";
    DropoutKeep => "In training some weights are dropped at random, so that the model does not lean on single tokens.";
    DropoutScale | WeightsDropped =>
        "Each weight is dropped with probability p. Those that stay are divided by 1 − p, so that a row still sums to 1 on average, and nothing need change when dropout is off. GPT-2 and BERT were trained with it, Llama without.";
    Q => "A query is what a token looks for. It is compared with the keys of all tokens.";
    K => "A key is what a token is found by. It is compared with the queries of all tokens.";
    V => "A value is what a token hands on to the queries that find it.";
    QHeads =>
        "One head can look for one thing at a time. Several heads, each with its own share of the features, look for several (grammar, meaning, words far away), at about the cost of one. In papers head i has a matrix W_i of its own: it is a block of d_k rows of w_q, rows i · d_k to (i + 1) · d_k − 1, so that one product with w_q makes the queries of all heads.";
    KHeads | VHeads => "Every head has its own share of the features, as with the queries: head h has features h · d_k to (h + 1) · d_k − 1.";
    QNorm | KNorm | QRotNorm | KRotNorm =>
        "Long queries and keys make huge scores, and softmax then sees one key alone. With the norm their length no longer counts.";
    CQNorm | CKvNorm => "With the norm the latent has one size whatever the token, and what is made of it stays in bounds.";
    VNorm => "With the norm no token counts for more because its value is long.";
    QClipped | KClipped | VClipped => "Single huge numbers upset training. Clipping keeps them within a limit.";
    VScaled => "The model was trained with values of this size.";
    QRot | KRot =>
        "Attention knows no order by itself. Queries and keys are turned by an angle that grows with their position, and as both turn, their dot product sees the distance alone.";
    QScaled => "The more keys there are, the more evenly softmax spreads. A factor that grows with the position sharpens it again.";
    KCached | VCached => "The new tokens also look at the earlier ones, whose keys and values the cache has.";
    KRepeated | VRepeated => "Several query heads share the keys and values of one head, so that the cache is smaller. Here each gets its copy.";
    ScoresRaw => "The dot product is large where query and key point the same way: it says how well the key fits what the query looks for.";
    Scores =>
        "The dot product of d_k independent numbers of variance 1 has variance d_k, where d_k is the width of one head, not of the model. Divided by √d_k it has variance 1 again; without that softmax would see one key alone, and learn hardly anything, as its gradients would vanish.";
    ScoresCapped => "No score grows beyond the cap, so that no key takes all the weight for good.";
    ScoresBiased => "What is added before softmax favours or disfavours keys: by their distance, or by a mask of 0 and −∞.";
    MaskedScores =>
        "A blocked key must get weight 0, so its score becomes so low that its exponential is 0. −1e9 does as −∞ would, but where every key of a row is blocked −∞ makes NaN, and −1e9 makes equal weights.";
    Weights =>
        "Softmax makes shares of the scores: none is negative, and each row sums to 1. Differences count, not sizes, so the largest score of the row is subtracted first, and no exponential overflows.";
    Lse => "Kernels keep it in place of the weights: from it and the scores they come again in the backward pass.";
    WeightsMean => "One picture in place of one a head; it hides that the heads look at different things.";
    HeadOutputs =>
        "Each token gets a mean of the values, by its weights: much of the tokens that fit, little of the others. With this the formula of attention is complete: softmax(QKᵀ / √d_k) · V, where each head has its own Q, K and V.";
    Concat =>
        "The heads' outputs stand side by side again, so that a token is one vector of all features. The heads divided the features among them, so the vector is as wide as before the split. In PyTorch a transpose moves no numbers in memory, so view needs contiguous() before it; reshape does both.";
    ConcatNorm => "The heads differ in size. The norm brings them to one before they are mixed.";
    Gate => "From the token itself it is told which features of the output should pass.";
    ConcatGated => "What the gate closes does not pass, so that a head can also add nothing.";
    Output =>
        "So far each head has its own features. The projection mixes what they found. Its width is that of each token from here on, usually the model's; a narrower one would be a bottleneck. The block around attention then adds x to this output. That residual connection keeps what the token was before, and lets gradients pass unchanged; it needs an output as wide as x. It is not part of attention, so it is no step here.";
    Delta =>
        "The weights of a row sum to 1, so that none can grow alone. Delta is what all of them would gain together, which softmax takes back. Kernels get it as the sum of output · d_output, the same number.";
    Within => "A step of a gradient that has no name of its own.";
}

/// Why there is the gradient of a step.
fn of_gradient(step: Name) -> &'static str {
    match (step, step.role()) {
        (Name::Output, _) => {
            "How the loss changes with each number of the output. The loss gives it, and all other gradients follow from it."
        }
        (Name::Weights, _) => {
            "How the loss changes with each weight: the more a value points along the gradient of the head's output, the more."
        }
        (Name::Scores | Name::MaskedScores | Name::ScoresBiased | Name::ScoresCapped, _) => {
            "How the loss changes with each score: what softmax leaves of the weights' gradients. Those of a row sum to 0, and blocked keys have none."
        }
        (Name::KRepeated | Name::VRepeated, _) => {
            "Every query head gives its own gradient to the key head that it shares. They are added up."
        }
        (_, Role::Parameter) => {
            "What training takes off the parameter, times the learning rate: the sum over all tokens of all items, as they share it."
        }
        (_, Role::Input) => {
            "What the layer before gets: how the loss changes with each number of its output."
        }
        (_, Role::Cache | Role::Random | Role::Setting | Role::Computed) => {
            "How the loss changes with each number of the step: what the steps that read it give back, added up."
        }
    }
}
