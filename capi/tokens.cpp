// SPDX-License-Identifier: Apache-2.0
#include "handles.h"
#include "texts.h"

using namespace minim;
using namespace minim::capi;
using tokenizer::TokenType;

const int32_t* minim_tokens_data(const minim_tokens* tokens) {
    static constexpr int32_t k_none = 0;
    return tokens == nullptr || tokens->ids.empty() ? &k_none : tokens->ids.data();
}

size_t minim_tokens_count(const minim_tokens* tokens) {
    return tokens == nullptr ? 0 : tokens->ids.size();
}

void minim_tokens_free(minim_tokens* tokens) {
    delete tokens;
}

const char* minim_text_data(const minim_text* text) {
    return text == nullptr ? "" : text->text.c_str();
}

size_t minim_text_length(const minim_text* text) {
    return text == nullptr ? 0 : text->text.size();
}

void minim_text_free(minim_text* text) {
    delete text;
}

minim_status minim_tokenize(const minim_model* model, const char* text, size_t length, int32_t specials,
                            minim_tokens** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const tokenizer::Tokenizer& tokenizer = required(model, "model").model().text().tokenizer();
        *out = new minim_tokens{tokenizer.encode(text_argument(text, length, "text"), specials_of(specials))};
    });
}

minim_status minim_detokenize(const minim_model* model, const int32_t* ids, size_t count,
                              int32_t skip_special, minim_text** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const tokenizer::Tokenizer& tokenizer = required(model, "model").model().text().tokenizer();
        *out = new minim_text{
            tokenizer.decode(ids_argument(ids, count, "ids"), flag(skip_special, "skip_special"))};
    });
}

int32_t minim_token_attributes(const minim_model* model, int32_t id) {
    if (model == nullptr || id < 0 || id >= model->model().config().n_vocab) return -1;
    const tokenizer::Tokenizer& tokenizer = model->model().text().tokenizer();
    if (id >= tokenizer.n_tokens()) return MINIM_TOKEN_UNUSED;
    int32_t attributes = 0;
    const TokenType type = tokenizer.token_type(id);
    if (type == TokenType::control || type == TokenType::unknown) attributes |= MINIM_TOKEN_CONTROL;
    if (type == TokenType::user_defined) attributes |= MINIM_TOKEN_USER_DEFINED;
    if (type == TokenType::unused) attributes |= MINIM_TOKEN_UNUSED;
    if (tokenizer.is_eog(id)) attributes |= MINIM_TOKEN_END;
    if (id == tokenizer.bos()) attributes |= MINIM_TOKEN_BOS;
    return attributes;
}

minim_status minim_token_text(const minim_model* model, int32_t id, minim_text** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        *out =
            new minim_text{std::string(required(model, "model").model().text().tokenizer().token_bytes(id))};
    });
}

minim_status minim_decoder_create(const minim_model* model, int32_t skip_special, minim_decoder** out,
                                  minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        *out = new minim_decoder{required(model, "model").open, {}, flag(skip_special, "skip_special"), {}};
    });
}

minim_status minim_decoder_push(minim_decoder* decoder, int32_t id, const char** text, size_t* length,
                                minim_error* err) {
    return guard(err, [&] {
        minim_decoder& d = required(decoder, "decoder");
        const Use use(d);
        required(text, "text");
        required(length, "length");
        const tokenizer::Tokenizer& tokenizer = d.open.model->text().tokenizer();
        const bool hidden = d.skip_special && tokenizer.is_special(id);
        d.text = hidden ? std::string() : d.stream.push(tokenizer.token_bytes(id));
        *text = d.text.c_str();
        *length = d.text.size();
    });
}

minim_status minim_decoder_finish(minim_decoder* decoder, const char** text, size_t* length,
                                  minim_error* err) {
    return guard(err, [&] {
        minim_decoder& d = required(decoder, "decoder");
        const Use use(d);
        required(text, "text");
        required(length, "length");
        d.text = d.stream.finish();
        *text = d.text.c_str();
        *length = d.text.size();
    });
}

void minim_decoder_free(minim_decoder* decoder) {
    release(decoder);
}
