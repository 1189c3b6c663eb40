// SPDX-License-Identifier: Apache-2.0
#include "constraint/schema_rules.h"

#include "base/error.h"

namespace minim::constraint {

Part SchemaRules::call(Grammar& grammar, const json::Value& schema, const std::string& where) {
    constexpr size_t k_max_rules = 10'000;
    const std::string key = json::to_text(schema);
    const auto known = rules_.find(key);
    if (known != rules_.end()) return grammar.call(known->second);
    if (rules_.size() == k_max_rules)
        fail(Status::unsupported, "{}: the schema has more than {} parts", where, k_max_rules);
    const RuleId rule = grammar.declare(where);
    rules_.emplace(key, rule);
    undefined_.push_back({rule, schema, where});
    return grammar.call(rule);
}

}  // namespace minim::constraint
