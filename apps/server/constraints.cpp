// SPDX-License-Identifier: Apache-2.0
#include "constraints.h"

#include <fmt/format.h>

namespace server {

namespace {

// A lack of memory may pass. An input that cannot be compiled stays so.
bool is_lasting(const minim::Exception& error) {
    return error.status() == MINIM_E_INVALID || error.status() == MINIM_E_UNSUPPORTED;
}

}  // namespace

minim::ConstraintOptions Constraints::options_of(Preamble preamble) const {
    minim::ConstraintOptions options;
    if (preamble == Preamble::reasoning) options.starts_after = think_end_;
    options.may_reason = preamble == Preamble::optional_reasoning;
    return options;
}

void Constraints::drop(const std::string& key) {
    const std::lock_guard lock(mutex_);
    made_.erase(key);
}

Constraints::Constraint Constraints::find_or_make(const std::string& key,
                                                  const std::function<minim::Constraint()>& make) {
    std::promise<Constraint> result;
    {
        std::unique_lock lock(mutex_);
        if (const auto* found = made_.find(key)) {
            const std::shared_future<Constraint> known = *found;
            lock.unlock();
            return known.get();  // waits for a compilation under way; throws its error
        }
        made_.put(key, result.get_future().share(), 0);
    }
    try {
        auto made = std::make_shared<const minim::Constraint>(make());
        result.set_value(made);
        return made;
    } catch (const minim::Exception& error) {
        result.set_exception(std::current_exception());
        if (!is_lasting(error)) drop(key);
        throw;
    } catch (...) {
        result.set_exception(std::current_exception());
        drop(key);
        throw;
    }
}

Constraints::Constraint Constraints::of_rule(const TextRule& rule, Preamble preamble) {
    std::string key = fmt::format("r{}{}", static_cast<int>(rule.kind), static_cast<int>(preamble));
    key += rule.text;
    for (const std::string& choice : rule.choices)
        key.append(fmt::format("{}:", choice.size())).append(choice);
    const minim::ConstraintOptions options = options_of(preamble);
    return find_or_make(key, [&] {
        switch (rule.kind) {
            case TextRule::Kind::regex:
                return minim::Constraint::from_regex(model_, rule.text, options);
            case TextRule::Kind::choice:
                return minim::Constraint::from_choices(model_, rule.choices, options);
            case TextRule::Kind::grammar:
                return minim::Constraint::from_grammar(model_, rule.text, options);
            default:
                return minim::Constraint::from_schema(model_, rule.text, options);
        }
    });
}

Constraints::Constraint Constraints::of_tools(const std::string& tools, const std::string& name, bool single,
                                              Preamble preamble, bool optional) {
    // Any text may precede an optional call.
    if (optional && preamble == Preamble::optional_reasoning) preamble = Preamble::none;
    minim::ConstraintOptions options = options_of(preamble);
    options.calls_are_optional = optional;
    options.relax = true;
    std::string key = fmt::format("t{}{}{}{}\n{}", static_cast<int>(preamble), single ? 1 : 0,
                                  optional ? 1 : 0, name, tools);
    return find_or_make(key,
                        [&] { return minim::Constraint::from_tools(model_, tools, name, single, options); });
}

}  // namespace server
