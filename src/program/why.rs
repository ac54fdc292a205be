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
    X => "Each row is one token as a vector: its embedding, or the output of the layer before. Everything else is computed from these rows.";
    Memory => "In cross attention the queries look at another sequence: the keys and values are projections of this input.";
    MemoryV => "Keys and values may come from two different inputs: the values are projections of this one.";
    BiasK | KWithBias => "Learned: an extra key that every query sees, whatever the tokens are. A head that finds no matching token can look there.";
    BiasV | VWithBias => "Learned: the value that belongs to the added key.";
    KWithZero | VWithZero => "A key of zeros has the score 0, and its value adds nothing: a head that finds no matching token can look there.";
    MaskPadded | AttnBiasPadded => "The mask covers the tokens. The added keys get columns of their own, in which nothing is blocked.";
    WQ => "Learned: it turns a token into a query, which says what the token looks for.";
    WK => "Learned: it turns a token into a key, which says what the token can be found by.";
    WV => "Learned: it turns a token into a value, the information that the token passes on when it is found.";
    WO => "Learned: it mixes what the heads have found. Without it, no head would use the result of another.";
    WDq | CQ => "A short vector for the token (a latent), from which the queries of all heads are computed: two small matrices replace a large one.";
    WDkv | CKv => "A short vector for the token (a latent), from which the keys and values of all heads are computed. The cache needs to hold only this.";
    WKr | KR | KRHeads =>
        "If the keys that come from the latent were rotated, they would have to be computed again for every new token. So the position goes into one more key, which all heads share.";
    KRRot => "The shared key is rotated by an angle that grows with its position, so its dot product with a query depends on their distance.";
    CHeads => "In the absorbed order the latent itself is the key and the value, one for all heads, so a decoding step reads the cache directly.";
    QAbsorbed => "q · (W_K c) equals (q W_K) · c: instead of computing a key from every latent, the weight is applied once, to the query.";
    KLatent => "The latent says what a token is, and the shared key after it says where it is. Together they are one key for all heads.";
    QJoined => "The first part of the query is compared with the latent, and the rotated features after it with the shared key, in one dot product.";
    LatentOutputs => "The weighted sum of the latents. Instead of computing a value from every latent, the weight is applied once, to this sum.";
    KJoined => "Each head's key says what the token is, and the shared key after it says where it is. One dot product uses both.";
    BQ | BK | BV | BO | BGate | BDq | BDkv | BKr => "Learned: it is added to every row of the projection, whatever the token is.";
    WQNorm | WKNorm | WConcatNorm | WCqNorm | WCkvNorm | WRelNorm => "Learned: the norm brings all features to the same scale, and this weight gives each feature its own scale again.";
    BQNorm | BKNorm | BRelNorm => "Learned: it shifts each feature after the norm.";
    WGate => "Learned: it decides from the token which features of its output pass.";
    LambdaQ1 | LambdaK1 | LambdaQ2 | LambdaK2 | Lambda =>
        "Learned: λ says how much of the second weights is subtracted. It is exp(q₁ · k₁) − exp(q₂ · k₂) + λ_init, so training starts near λ_init.";
    WeightsDiff => "Both heads of a pair give some weight to tokens that do not matter. Where they agree, the subtraction cancels it, and what is left points to the tokens that matter.";
    WHeadNorm => "Learned: it gives each feature of a head's output its own scale after the norm. All heads share it.";
    HeadNorm => "After the subtraction, the outputs of the heads differ a lot in size. The norm brings them to the same size.";
    HeadScaled => "The factor 1 − λ_init gives the gradients the same size as in an ordinary Transformer.";
    WNorm | BNorm => "Learned: the norm brings all features to the same scale, and its parameters give each feature its own again.";
    NormOutput => "What the next part reads has one size, however much the parts before it added to a token.";
    WLinear | BLinear | LinearOutput => "A linear layer makes other features of a token, such as the score of every word of the vocabulary.";
    WMlpGate | BMlpGate | MlpGate => "The gate decides from the token which hidden features pass.";
    WMlpUp | BMlpUp | MlpUp => "The MLP has more features inside than outside: each looks for a pattern in the token.";
    MlpHidden => "The activation keeps the features whose patterns were found. Without it, the MLP would be one linear layer.";
    WMlpDown | BMlpDown | MlpOutput => "What was found is written back: each hidden feature adds its row to the token.";
    Sinks => "The weights of a row sum to 1, so a head has to look somewhere. A sink takes the weight that should go to no key.";
    RelativeTable => "Learned: how much each head prefers a key at each distance.";
    RelEmbeddings => "Learned: a vector for each relative position, which all layers share. Distances beyond the last share its vector.";
    WPosK | BPosK => "Learned: it turns a relative position into a key. Some models use the projection of the tokens' keys for it.";
    WPosQ | BPosQ => "Learned: it turns a relative position into a query. Some models use the projection of the tokens' queries for it.";
    RelNorm => "With the norm, the vectors of all relative positions have the same size, as those of tokens do.";
    PosK | PosKHeads => "Each relative position is a key too, so that a query can look for what stands at a distance, whatever it is.";
    PosQ | PosQHeads => "Each relative position is a query too, so that a key can say from which distance it is worth looking at.";
    C2pProducts | P2cProducts =>
        "There are far fewer relative positions than pairs of tokens. So the products with all positions are computed once, and each pair picks the one of its distance.";
    C2pPicked => "Content to position: how much this query wants a key at this distance. The position is query − key, which tells earlier keys from later ones.";
    P2cPicked => "Position to content: how much this key wants to be seen from this distance. The products have a row for each key, so they are transposed.";
    C2p | P2c => "The score is the sum of several products, each of variance d_k. Divided by √(d_k · their number) the sum has variance 1.";
    RelAtt => "What a token is and where it stands are kept apart (disentangled): one term for each way in which the two can meet. That of position and position would be the same for all tokens, and is left out.";
    ScoresRelative => "The first term compares what the tokens are. The others add what their distance means for this query and this key, where a bias of positions would be the same for all tokens.";
    G | Decay =>
        "The state cannot hold everything. Before each token, what it holds fades: decay = exp(g) is between 0 and 1, and the token decides how much is kept.";
    Beta => "The token decides how much of what it finds wrong it corrects: 0 writes nothing, 1 overwrites what the state has for its key.";
    InitialState => "A long sequence can be continued: the state of the tokens before stands for all of them.";
    VNew =>
        "The state is a table from keys to values. What it already has for the key is read first, and only the difference to the value is written: this is the delta rule. So a key that comes again replaces its value, where plain linear attention would add to it.";
    States | ChunkStates =>
        "The whole memory of a head: a matrix that gives the value for a key. It has the same size after any number of tokens, which is what makes this attention linear in their number. In chunks, kernels keep it only at their edges.";
    FinalState => "All that is known of the tokens. In decoding, the next token starts from here, and no keys and values are kept.";
    QRepeated => "Several heads of values share the queries and keys of one head. Here each head of values gets its copy.";
    RopeFreqs => "Each pair of features rotates at its own speed: fast pairs tell neighbours apart, slow pairs tell distant positions apart.";
    KShared | VShared =>
        "The last layers of some models use the keys and values of an earlier layer, so they need no weights and no cache of their own.";
    VRot => "RoFormer can rotate the values too, so what a query gets from them depends on their positions.";
    QQuantized | KQuantized | VQuantized =>
        "Decoding reads mostly the cache of keys and values. With 8 or 4 bits per number the cache takes a half or a quarter of the memory, and is read faster by as much.";
    QScale | KScale | VScale | KScalePages | VScalePages =>
        "A few bits can represent only a few different numbers. The scale spreads these over the range of the data; the fewer numbers share a scale, the smaller the error.";
    QZeroPoint | KZeroPoint | VZeroPoint => "Data that is not centred on 0 is counted from another point, so that no code is wasted.";
    QDequantized | KDequantized | VDequantized =>
        "Each code is turned into the number that it stands for before it is used, or its scale is applied to the product.";
    KPages | VPages | KGathered | VGathered =>
        "A growing cache does not need one contiguous block: keys are kept in pages of a few slots, wherever a page is free, and sequences with the same beginning share pages.";
    Slots => "A table tells which pages hold a sequence's keys; the slot of each key follows from it.";
    KPast | VPast => "The keys and values of earlier tokens do not change, so they are kept instead of being computed again.";
    CausalMask => "A model that predicts the next token must not see that token: each query sees only itself and the tokens before it.";
    WindowMask => "Each query sees only its neighbours, so the cost of a token grows with the window, not with the length.";
    ChunkMask => "Each query sees only its own chunk, so the cost of a token grows with the chunk, not with the length.";
    KeyMask | LengthMask => "The sequences of a batch differ in length, so the short ones are padded. Padding has no meaning and must get no weight.";
    DocumentMask => "Several documents are packed into one row to save space, and they must not see each other.";
    SelectionMask => "Each query sees only the keys that something chose for it: an indexer that picks a few of many, blocks that are worth their time, or the branch of a tree of guessed tokens that the query stands on.";
    FileMask | Mask =>
        "It says which keys a query may not see. True means blocked; in the code of many models, attention_mask means the opposite: 1 for a visible key. The mask is broadcast to all heads and, if it has one row for all of them, to all items.";
    AlibiSlopes => "Each head has its own slope, so some heads look near and some look far.";
    Alibi => "Attention itself ignores the order of the tokens. Here a key's score is lowered by its distance, which also works for lengths that were not in the training data.";
    RelativeBias => "Attention itself ignores the order of the tokens. Here each distance adds a learned number to the score.";
    GivenBias | FileBias | AttnBias => "The number that is added to a score raises or lowers the key's weight; −∞ blocks the key.";
    DropoutKeep => "In training, some weights are dropped at random, so the model does not rely on single tokens.";
    DropoutScale | WeightsDropped =>
        "Each weight is dropped with probability p. The others are divided by 1 − p, so a row still sums to 1 on average and nothing has to change when dropout is off. GPT-2 and BERT were trained with dropout here, Llama without.";
    Q => "A query says what a token looks for. It is compared with the keys of all tokens.";
    K => "A key says what a token can be found by. It is compared with the queries of all tokens.";
    V => "A value is the information that a token passes on to the queries that find it.";
    QHeads =>
        "One head can look for one thing at a time. Several heads, each with its own share of the features, look for several things (grammar, meaning, distant words), at about the cost of one head. In papers, head i has its own matrix W_i. Here it is a block of d_k rows of w_q, rows i · d_k to (i + 1) · d_k − 1, so one product with w_q computes the queries of all heads.";
    KHeads | VHeads => "Every head has its own share of the features, like the queries: head h has features h · d_k to (h + 1) · d_k − 1.";
    QNorm | KNorm | QRotNorm | KRotNorm =>
        "Long queries and keys give very large scores, and softmax then puts all the weight on one key. With the norm, their length no longer matters.";
    CQNorm | CKvNorm => "With the norm, the latent has the same size for every token, so the numbers that are computed from it stay within bounds.";
    VNorm => "With the norm, no token counts for more just because its value is long.";
    QClipped | KClipped | VClipped => "A few very large numbers make training unstable. Clipping keeps them within a limit.";
    VScaled => "The model was trained with values of this size.";
    QRot | KRot =>
        "Attention itself ignores the order of the tokens. Queries and keys are rotated by an angle that grows with their position. As both are rotated, their dot product depends only on the distance.";
    QScaled => "With softmax, a factor that grows with the position sharpens the weights again, which more keys spread more evenly. Where there is no softmax, it is 1/√d_k, which keeps the outputs of any head size alike.";
    KCached | VCached => "The new tokens also look at the earlier ones, whose keys and values are in the cache.";
    KRepeated | VRepeated => "Several query heads share the keys and values of one head, so the cache is smaller. Here each query head gets its copy.";
    ScoresRaw => "The dot product is large where the query and the key point in the same direction. It says how well the key matches what the query looks for.";
    Scores =>
        "The dot product of two vectors of d_k independent numbers of variance 1 has variance d_k, where d_k is the width of one head, not of the model. Divided by √d_k it has variance 1 again. Without that, softmax would put nearly all the weight on one key, its gradients would vanish, and the layer would hardly learn.";
    ScoresCapped => "No score grows beyond the cap, so no key can take all the weight permanently.";
    ScoresBiased => "What is added before softmax raises or lowers the weight of keys: by their distance, or by a mask of 0 and −∞.";
    MaskedScores =>
        "A blocked key must get weight 0, so its score is set so low that its exponential is 0. −1e9 works as −∞ does, with one difference: if every key of a row is blocked, −∞ gives NaN, and −1e9 gives equal weights.";
    Weights =>
        "Softmax turns the scores into shares: none is negative, and each row sums to 1. The result depends only on the differences between the scores of a row, so the largest one is subtracted first, and no exponential overflows.";
    SplitMax => "Each split of the keys is attended to on its own. The largest score of its keys is subtracted before the exponential, so that nothing overflows; a split without a visible key has −∞.";
    SplitSum => "The sum of the exponentials of the split's keys: by it the split's softmax is divided.";
    SplitAcc => "The values of the split's keys, each times the exponential of its score. They are divided by the sum afterwards.";
    SplitOutputs => "What attention would give if the split had all keys: its weights sum to 1. A split without a visible key gives zeros.";
    SplitLse => "One number says how much a split weighs beside others: the logarithm of the sum of the exponentials of its scores.";
    TileMax => "The keys come tile by tile. The largest score so far is subtracted before the exponential; it can grow with every tile.";
    TileFactor => "What was summed before used the old maximum. Multiplied by exp(old − new) it is what the new maximum would have given.";
    TileSum => "The sum of the exponentials of all keys so far, for the maximum so far. After the last tile it is what softmax divides by.";
    TileAcc => "The values of all keys so far, each times the exponential of its score, for the maximum so far. After the last tile they are divided by the sum.";
    Lse => "Kernels keep it instead of the weights: in the backward pass, the weights are computed again from it and the scores.";
    SplitWeights => "Each split's share of all keys: exp(its log-sum-exp − that of all). The shares of all splits sum to 1, or, with a sink, to less.";
    WeightsMean => "One table instead of one per head. It hides that the heads look at different things.";
    HeadOutputs =>
        "Each token gets the mean of the values, weighted by its attention weights: much from the tokens that match, little from the others. This completes the formula of attention: softmax(QKᵀ / √d_k) · V, where each head has its own Q, K and V.";
    Concat =>
        "The outputs of the heads are put side by side again, so a token is one vector of all features. The heads divided the features among them, so the vector is as wide as before the split. In PyTorch, a transpose moves no numbers in memory, so view needs contiguous() before it; reshape does both.";
    ConcatNorm => "The outputs of the heads differ in size. The norm brings them to the same size before they are mixed.";
    Gate => "The token itself decides which features of the output pass.";
    ConcatGated => "What the gate closes does not pass, so a head can also contribute nothing.";
    Output =>
        "So far each head has its own features. The projection mixes what they found. Its width is the width of each token from here on, usually that of the model; a narrower one would be a bottleneck. The block around attention then adds x to this output. That residual connection keeps what the token was before, and lets gradients pass unchanged; it needs an output as wide as x. It is not part of attention, so it is not a step here.";
    Delta =>
        "The weights of a row sum to 1, so no weight can grow on its own. Delta is the weighted mean of their gradients, which softmax subtracts from each. Kernels compute it as the sum of output · d_output, which is the same number.";
    Within => "An intermediate step of a gradient, without a name of its own.";
}

/// Why there is the gradient of a step.
fn of_gradient(step: Name) -> &'static str {
    match (step, step.role()) {
        (Name::Output, _) => {
            "How the loss changes with each number of the output. It comes from the loss, and all other gradients are computed from it."
        }
        (Name::Weights, _) => {
            "How the loss changes with each weight: more, the more the value points along the gradient of the head's output."
        }
        (
            Name::Scores
            | Name::MaskedScores
            | Name::ScoresRelative
            | Name::ScoresBiased
            | Name::ScoresCapped,
            _,
        ) => {
            "How the loss changes with each score: the gradients of the weights, passed back through softmax. Those of a row sum to 0, and those of blocked keys are 0."
        }
        (Name::KRepeated | Name::VRepeated, _) => {
            "Every query head sends its own gradient to the key head that it shares, where they are added up."
        }
        (_, Role::Parameter) => {
            "Times the learning rate, this is what a step of training subtracts from the parameter. It is a sum over all tokens of all items, as they share the parameter."
        }
        (_, Role::Input) => {
            "What is passed back to the layer before: how the loss changes with each number of its output."
        }
        (_, Role::Cache | Role::Random | Role::Setting | Role::Computed) => {
            "How the loss changes with each number of the step: the sum of what comes back from the steps that read it."
        }
    }
}
