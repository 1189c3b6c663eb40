#include "handles.h"
#include "model/chat_tokens.h"
#include "texts.h"

using namespace minim;
using namespace minim::capi;

namespace {

std::vector<chat::Segment> rendered(const minim_model* model, const char* messages, const char* tools,
                                    const char* kwargs) {
    const chat::Template& chat_template = required(model, "model").model().chat_template();
    return chat::render(chat_template, &required(messages, "messages"), optional_text(tools),
                        optional_text(kwargs), {});
}

}  // namespace

minim_status minim_chat_render(const minim_model* model, const char* messages, const char* tools,
                               const char* kwargs, minim_text** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        *out = new minim_text{chat::join(rendered(model, messages, tools, kwargs))};
    });
}

minim_status minim_chat_tokenize(const minim_model* model, const char* messages, const char* tools,
                                 const char* kwargs, int32_t specials, minim_tokens** out, minim_error* err) {
    return guard(err, [&] {
        required(out, "out") = nullptr;
        const tokenizer::Specials user_specials = specials_of(specials);
        const std::vector<chat::Segment> segments = rendered(model, messages, tools, kwargs);
        const tokenizer::Tokenizer& tokenizer = model->model().tokenizer();
        *out = new minim_tokens{model::chat_tokens(tokenizer, segments, user_specials)};
    });
}
