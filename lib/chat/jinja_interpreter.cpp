// SPDX-License-Identifier: Apache-2.0
#include "chat/jinja_interpreter.h"

#include <algorithm>

#include "base/error.h"
#include "base/format_text.h"
#include "chat/jinja_loop.h"

namespace minim::chat::jinja {
namespace {

constexpr size_t k_max_depth = 500;                     // of nested evaluations: bounds the stack
constexpr size_t k_max_text_bytes = size_t{256} << 20;  // of one text

// The variables of a block. They hide variables of the same names in the blocks around it.
struct Scope {
    Scope* outer = nullptr;
    Variables variables = {};

    Value* find(std::string_view name) {
        for (auto& [known, value] : variables)
            if (known == name) return &value;
        return nullptr;
    }
    void set(std::string_view name, Value value) {
        if (Value* known = find(name)) {
            *known = std::move(value);
        } else {
            variables.emplace_back(name, std::move(value));
        }
    }
};

enum class Flow : uint8_t { on, leave, next };

class Interpreter {
  public:
    explicit Interpreter(uint64_t steps) : meter_(steps) {}
    ~Interpreter() {
        // Namespaces may refer to each other, and reference counts do not free cycles.
        for (const auto& space : spaces_) space->members.clear();
    }
    Interpreter(const Interpreter&) = delete;
    Interpreter& operator=(const Interpreter&) = delete;

    MarkedText run(const ParsedTemplate& parsed, Variables variables) {
        root_.variables = std::move(variables);
        MarkedText out;
        try {
            run_block(parsed.body, root_, out);
        } catch (const Error& error) {
            if (raised_ || error.status() == Status::out_of_memory) throw;
            throw Error(error.status(), error.reason(),
                        format_text("the chat template, line {}: {}", line_, error.what()));
        }
        return out;
    }

  private:
    // Counts a level of recursion while it lives.
    class Level {
      public:
        explicit Level(Interpreter& of) : of_(of) {
            of_.meter_.spend(1);
            if (++of_.depth_ > k_max_depth)
                fail(Status::invalid, "the chat template recurses deeper than {} levels", k_max_depth);
        }
        ~Level() { --of_.depth_; }
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;

      private:
        Interpreter& of_;
    };

    // ---- statements

    Flow run_block(const Block& block, Scope& scope, MarkedText& out) {
        const Level level(*this);
        for (const Statement& statement : block) {
            const Flow flow = run_statement(statement, scope, out);
            if (flow != Flow::on) return flow;
        }
        return Flow::on;
    }

    Flow run_statement(const Statement& statement, Scope& scope, MarkedText& out) {
        line_ = statement.line;
        switch (statement.kind) {
            case StatementKind::data:
                make_room(statement.text.size(), out);
                out.append(statement.text, false);
                return Flow::on;
            case StatementKind::print:
                print(evaluate(*statement.expr, scope), out);
                return Flow::on;
            case StatementKind::set:
                assign(statement.target, evaluate(*statement.expr, scope), scope);
                return Flow::on;
            case StatementKind::set_block: {
                MarkedText printed;
                Scope inner{&scope};
                run_block(statement.body, inner, printed);
                assign(statement.target, text(std::move(printed)), scope);
                return Flow::on;
            }
            case StatementKind::conditional:
                return run_conditional(statement, scope, out);
            case StatementKind::loop:
                run_loop(statement, scope, out);
                return Flow::on;
            case StatementKind::macro: {
                Value macro;
                macro.kind = Kind::macro;
                macro.pointer = statement.macro;
                scope.set(statement.text, std::move(macro));
                return Flow::on;
            }
            case StatementKind::pass_through: {
                Scope inner{&scope};
                return run_block(statement.body, inner, out);
            }
            case StatementKind::leave:
                return Flow::leave;
            case StatementKind::next:
                break;
        }
        return Flow::next;
    }

    void make_room(size_t bytes, const MarkedText& out) {
        meter_.spend_text(bytes);
        if (out.size() + bytes > k_max_text_bytes)
            fail(Status::invalid, "the chat template makes a text of more than {} MiB",
                 k_max_text_bytes >> 20U);
    }

    void print(const Value& value, MarkedText& out) {
        if (!value.is(Kind::text)) return print(text(to_text(value)), out);
        make_room(value.bytes().size(), out);
        out.append(value.text());
    }

    Flow run_conditional(const Statement& statement, Scope& scope, MarkedText& out) {
        for (const Branch& branch : statement.branches) {
            if (branch.condition == nullptr || is_true(evaluate(*branch.condition, scope)))
                return run_block(branch.body, scope, out);
        }
        return Flow::on;
    }

    void run_loop(const Statement& statement, Scope& scope, MarkedText& out) {
        std::vector<Value> items = items_of(evaluate(*statement.expr, scope), meter_);
        if (statement.condition != nullptr) {
            std::vector<Value> kept;
            for (Value& item : items) {
                Scope inner{&scope};
                assign(statement.target, item, inner);
                if (is_true(evaluate(*statement.condition, inner))) kept.push_back(std::move(item));
            }
            items = std::move(kept);
        }
        if (items.empty()) {
            Scope inner{&scope};
            run_block(statement.other, inner, out);
            return;
        }
        const auto loop = std::make_shared<const Loop>(Loop{std::move(items), 0, {}, false});
        for (; loop->index < loop->items.size(); ++loop->index) {
            Scope inner{&scope};
            inner.set("loop", loop_value(loop));
            assign(statement.target, loop->items[loop->index], inner);
            if (run_block(statement.body, inner, out) == Flow::leave) break;
        }
        loop->last_changed = {};  // it may hold the loop itself
    }

    void assign(const Target& target, const Value& value, Scope& scope) {
        if (!target.parts.empty()) return unpack(target, value, scope);
        if (target.attribute.empty()) return scope.set(target.name, value);
        const Value space = lookup(target.name, scope);
        if (!space.is(Kind::space)) fail(Status::invalid, "cannot assign attribute on non-namespace object");
        set_member(space.space(), target.attribute, value);
    }

    static void set_member(const Namespace& space, std::string_view name, const Value& value) {
        for (auto& [known, member_value] : space.members) {
            if (known != name) continue;
            member_value = value;
            return;
        }
        space.members.emplace_back(name, value);
    }

    void unpack(const Target& target, const Value& value, Scope& scope) {
        const std::vector<Value> items = items_of(value, meter_);
        if (items.size() != target.parts.size()) {
            fail(Status::invalid, "{} values to unpack, expected {}", items.size(), target.parts.size());
        }
        for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
    }

    // ---- expressions

    Value lookup(std::string_view name, Scope& scope) {
        for (Scope* in = &scope; in != nullptr; in = in->outer)
            if (const Value* found = in->find(name)) return *found;
        if (is_function(name)) return method({}, name);
        if (is_unsupported_function(name))
            fail(Status::unsupported, "the chat template uses {}, which is not supported", name);
        return undefined(format_text("'{}' is undefined", name));
    }

    Value evaluate(const Expr& expr, Scope& scope) {
        const Level level(*this);
        line_ = expr.line;
        switch (expr.kind) {
            case ExprKind::literal:
                return expr.literal;
            case ExprKind::name:
                return lookup(expr.name, scope);
            case ExprKind::list:
            case ExprKind::tuple:
                return list(evaluate_all(expr, 0, scope), expr.kind == ExprKind::tuple);
            case ExprKind::dict:
                return make_dict(expr, scope);
            case ExprKind::attribute:
                return attribute(evaluate(*expr.items[0], scope), expr.name);
            case ExprKind::subscript:
                return evaluate_subscript(expr, scope);
            case ExprKind::slice:
                return evaluate_slice(expr, scope);
            case ExprKind::call:
                return evaluate_call(expr, scope);
            case ExprKind::filter: {
                const Value value = evaluate(*expr.items[0], scope);
                return apply_filter(expr.name, value, arguments_of(expr, scope), meter_);
            }
            case ExprKind::test: {
                const Value value = evaluate(*expr.items[0], scope);
                return boolean(apply_test(expr.name, value, arguments_of(expr, scope), meter_));
            }
            case ExprKind::negate:
                return negated(evaluate(*expr.items[0], scope));
            case ExprKind::plus:
                return negated(negated(evaluate(*expr.items[0], scope)));
            case ExprKind::logical_not:
                return boolean(!is_true(evaluate(*expr.items[0], scope)));
            case ExprKind::logical_and:
            case ExprKind::logical_or:
                return evaluate_logical(expr, scope);
            case ExprKind::concat:
                return evaluate_concat(expr, scope);
            case ExprKind::arithmetic: {
                const Value left = evaluate(*expr.items[0], scope);
                return checked(arithmetic(expr.name, left, evaluate(*expr.items[1], scope), meter_));
            }
            case ExprKind::comparison:
                return evaluate_comparison(expr, scope);
            case ExprKind::conditional:
                break;
        }
        if (is_true(evaluate(*expr.items[0], scope))) return evaluate(*expr.items[1], scope);
        if (expr.items[2] == nullptr) return undefined("the inline if-expression has no else part");
        return evaluate(*expr.items[2], scope);
    }

    static Value checked(Value value) {
        if (value.is(Kind::text) && value.bytes().size() > k_max_text_bytes)
            fail(Status::invalid, "the chat template makes a text of more than {} MiB",
                 k_max_text_bytes >> 20U);
        return value;
    }

    std::vector<Value> evaluate_all(const Expr& expr, size_t first, Scope& scope) {
        std::vector<Value> values;
        for (size_t i = first; i < expr.items.size(); ++i) values.push_back(evaluate(*expr.items[i], scope));
        return values;
    }

    Arguments arguments_of(const Expr& expr, Scope& scope) {
        Arguments arguments{evaluate_all(expr, 1, scope), {}};
        for (const auto& [name, value] : expr.keywords)
            arguments.keywords.emplace_back(name, evaluate(*value, scope));
        return arguments;
    }

    Value make_dict(const Expr& expr, Scope& scope) {
        Dict members;
        for (size_t i = 0; i + 1 < expr.items.size(); i += 2) {
            const Value key = evaluate(*expr.items[i], scope);
            if (!key.is(Kind::text))
                fail(Status::unsupported, "a dict with a {} as key in the chat template is not supported",
                     type_name(key));
            Value value = evaluate(*expr.items[i + 1], scope);
            meter_.spend(4 + members.keys.size() / 8);
            const Value* known = members.find(key.bytes());
            if (known == nullptr) {
                members.keys.push_back(key.text());
                members.values.push_back(std::move(value));
            } else {
                members.values[known - members.values.data()] = std::move(value);
            }
        }
        return dict(std::move(members));
    }

    Value evaluate_subscript(const Expr& expr, Scope& scope) {
        const Value value = evaluate(*expr.items[0], scope);
        return subscript(value, evaluate(*expr.items[1], scope), meter_);
    }

    Value evaluate_slice(const Expr& expr, Scope& scope) {
        Value parts[4];
        for (size_t i = 0; i < 4; ++i)
            if (expr.items[i] != nullptr) parts[i] = evaluate(*expr.items[i], scope);
        return slice(parts[0], parts[1], parts[2], parts[3], meter_);
    }

    Value evaluate_logical(const Expr& expr, Scope& scope) {
        const bool is_and = expr.kind == ExprKind::logical_and;
        Value value;
        for (const ExprPtr& item : expr.items) {
            value = evaluate(*item, scope);
            if (is_true(value) != is_and) break;
        }
        return value;
    }

    Value evaluate_concat(const Expr& expr, Scope& scope) {
        MarkedText result;
        for (const ExprPtr& item : expr.items) print(evaluate(*item, scope), result);
        return text(std::move(result));
    }

    bool compared(std::string_view symbol, const Value& a, const Value& b) {
        meter_.spend_text(a.is(Kind::text) && b.is(Kind::text) ? std::min(a.bytes().size(), b.bytes().size())
                                                               : 0);
        if (symbol == "==") return equal(a, b);
        if (symbol == "!=") return !equal(a, b);
        if (symbol == "in") return contains(b, a, meter_);
        if (symbol == "not in") return !contains(b, a, meter_);
        if (a.is(Kind::undefined)) fail_undefined(a);
        if (b.is(Kind::undefined)) fail_undefined(b);
        const int order = compare(a, b);
        if (symbol == "<") return order < 0;
        if (symbol == "<=") return order <= 0;
        return symbol == ">" ? order > 0 : order >= 0;
    }

    Value evaluate_comparison(const Expr& expr, Scope& scope) {
        Value left = evaluate(*expr.items[0], scope);
        for (size_t i = 0; i < expr.operators.size(); ++i) {
            Value right = evaluate(*expr.items[i + 1], scope);
            if (!compared(expr.operators[i], left, right)) return boolean(false);
            left = std::move(right);
        }
        return boolean(true);
    }

    // ---- calls

    Value evaluate_call(const Expr& expr, Scope& scope) {
        const Value callee = evaluate(*expr.items[0], scope);
        const Arguments arguments = arguments_of(expr, scope);
        if (callee.is(Kind::macro)) return call_macro(callee.macro(), arguments);
        if (callee.is(Kind::undefined)) fail_undefined(callee);
        if (!callee.is(Kind::method)) fail(Status::invalid, "'{}' object is not callable", type_name(callee));
        const Method& called = callee.method();
        if (called.self.is(Kind::undefined) && called.name == "namespace") return make_namespace(arguments);
        raised_ = called.self.is(Kind::undefined) && called.name == "raise_exception";
        return checked(call_method(called, arguments, meter_));
    }

    Value make_namespace(const Arguments& arguments) {
        meter_.spend(100);  // it lives until the rendering ends
        const auto space = std::make_shared<const Namespace>();
        spaces_.push_back(space);
        for (const Value& from : arguments.positional) {
            if (!from.is(Kind::dict))
                fail(Status::unsupported, "namespace() of a {} is not supported", type_name(from));
            for (size_t i = 0; i < from.dict().keys.size(); ++i)
                set_member(*space, from.dict().keys[i].bytes(), from.dict().values[i]);
        }
        for (const auto& [name, value] : arguments.keywords) set_member(*space, name, value);
        Value value;
        value.kind = Kind::space;
        value.pointer = space;
        return value;
    }

    Value call_macro(const Macro& macro, const Arguments& arguments) {
        const Level level(*this);
        if (arguments.positional.size() > macro.parameters.size()) {
            fail(Status::invalid, "macro '{}' takes not more than {} argument(s)", macro.name,
                 macro.parameters.size());
        }
        Scope scope{&root_};
        for (size_t i = 0; i < arguments.positional.size(); ++i)
            scope.set(macro.parameters[i], arguments.positional[i]);
        for (const auto& [name, value] : arguments.keywords) {
            if (std::find(macro.parameters.begin(), macro.parameters.end(), name) == macro.parameters.end())
                fail(Status::invalid, "macro '{}' takes no keyword argument '{}'", macro.name, name);
            if (scope.find(name) != nullptr)
                fail(Status::invalid, "macro '{}' got multiple values for argument '{}'", macro.name, name);
            scope.set(name, value);
        }
        const size_t n_required = macro.parameters.size() - macro.defaults.size();
        for (size_t i = 0; i < macro.parameters.size(); ++i) {
            const std::string& name = macro.parameters[i];
            if (scope.find(name) != nullptr) continue;
            if (i < n_required) {
                scope.set(name, undefined(format_text("parameter '{}' was not provided", name)));
            } else {
                scope.set(name, evaluate(*macro.defaults[i - n_required], scope));
            }
        }
        MarkedText out;
        run_block(macro.body, scope, out);
        return text(std::move(out));
    }

    Meter meter_;
    size_t depth_ = 0;
    size_t line_ = 0;      // of the last statement or expression begun
    bool raised_ = false;  // the template itself raised the error
    Scope root_;
    std::vector<std::shared_ptr<const Namespace>> spaces_;
};

}  // namespace

void Meter::spend(uint64_t steps) {
    if (steps > left_) fail(Status::invalid, "the chat template does not end: it used up its steps");
    left_ -= steps;
}

MarkedText run(const ParsedTemplate& parsed, Variables variables, uint64_t steps) {
    return Interpreter(steps).run(parsed, std::move(variables));
}

}  // namespace minim::chat::jinja
