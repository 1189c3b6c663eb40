// SPDX-License-Identifier: Apache-2.0
#include "reply.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "random_id.h"
#include "request_log.h"

namespace server {

namespace {

double seconds(std::chrono::steady_clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
}

}  // namespace

Reply::Reply(Tools tools, std::shared_ptr<Exchange> exchange, Plan plan, Clock::time_point arrived)
    : tools_(std::move(tools)), exchange_(std::move(exchange)), plan_(std::move(plan)), arrived_(arrived) {}

void Reply::start(std::function<void()> on_done) {
    on_done_ = std::move(on_done);
    if (!tools_.serving->jobs.has_room_for(plan_.answers.size())) {
        ++tools_.serving->metrics->n_rejected;
        HttpResponse response = error_response({429, "too many requests wait; try again", "", "queue_full"},
                                               plan_.family, exchange_->request.id);
        response.headers.emplace_back("Retry-After", "1");
        exchange_->respond(response);
        return done();
    }
    exchange_->on_gone = [weak = weak_from_this()] {  // the reply owns the exchange
        const auto self = weak.lock();
        if (self == nullptr) return;
        ++self->tools_.serving->metrics->n_aborted;
        self->cancel();
    };
    last_sent_ = Clock::now();
    if (plan_.is_stream) {
        if (!exchange_->is_stream()) exchange_->begin_stream();  // it may have waited for its model
        exchange_->send(std::visit([](auto& writer) { return writer.start(); }, plan_.writer));
    }
    n_left_ = plan_.answers.size();
    choices_.resize(n_left_);
    std::unordered_set<const void*> prompts;
    for (size_t i = 0; i < choices_.size(); ++i) {
        Choice& choice = choices_[i];
        choice.reader.emplace(plan_.format);
        choice.is_reasoning = plan_.format.is_chat && plan_.format.starts_in_reasoning;
        choice.job = std::make_shared<Job>();
        Job& job = *choice.job;
        job.prompt = plan_.answers[i].prompt;
        job.sampling = std::move(plan_.answers[i].sampling);
        job.wants_no_token = plan_.wants_no_token;
        job.settings = plan_.settings;
        job.priority = plan_.priority;
        job.timeout_ms = tools_.serving->options.timeout_seconds * 1000;
        job.on_tokens = [self = shared_from_this(), i](std::span<const Token> tokens) {
            self->on_tokens(i, tokens);
        };
        job.on_end = [self = shared_from_this(), i](const JobEnd& end) { self->on_end(i, end); };
        if (prompts.insert(job.prompt.get()).second) usage_.n_prompt += job.prompt->size();
    }
    const auto self = shared_from_this();
    for (size_t i = 0; i < choices_.size() && choices_[i].job; ++i)
        tools_.serving->jobs.submit(choices_[i].job);
}

void Reply::ping(Clock::time_point now, Clock::duration interval) {
    if (!plan_.is_stream || n_left_ == 0 || now - last_sent_ < interval) return;
    last_sent_ = now;
    exchange_->send(std::visit([](auto& writer) { return writer.ping(); }, plan_.writer));
}

// Moves the tokens of the prompt, which are complete by now, to the answer.
void Reply::take_prompt(Choice& choice) {
    std::vector<Token>& tokens = choice.job->prompt_tokens;
    if (!tokens.empty()) choice.answer.prompt_tokens = std::exchange(tokens, {});
}

// Gives calls their ids, leaves out what the client does not want, and adds the rest to the answer.
void Reply::take_deltas(Choice& choice, std::vector<Delta>& deltas) const {
    ReplyText& answer = choice.answer;
    if (!deltas.empty()) choice.is_reasoning = deltas.back().kind == Delta::Kind::reasoning;
    const size_t n_left_out = std::erase_if(deltas, [&](const Delta& delta) {
        return (delta.kind == Delta::Kind::reasoning && !plan_.shows_reasoning) ||
               (delta.kind == Delta::Kind::call && plan_.has_one_call && delta.call > 0);
    });
    choice.is_whole = choice.is_whole && n_left_out == 0;
    for (Delta& delta : deltas) {
        if (delta.kind == Delta::Kind::reasoning) answer.reasoning += delta.text;
        if (delta.kind == Delta::Kind::content) answer.content += delta.text;
        if (delta.kind != Delta::Kind::call) continue;
        if (delta.call == answer.calls.size())
            answer.calls.push_back({"call_" + random_hex(24), delta.name, ""});
        answer.calls[delta.call].arguments += delta.text;
        delta.call_id = answer.calls[delta.call].id;
    }
}

// Adds tokens for log-probabilities. Tokens without text wait for a token with text, which shows that they are not part of a stop
// text.
void Reply::keep_tokens(Choice& choice, std::span<const Token> tokens, News& news) const {
    for (const Token& token : tokens) {
        choice.pending.push_back(token);
        if (token.text.empty() && !plan_.stops.empty()) continue;
        std::move(choice.pending.begin(), choice.pending.end(), std::back_inserter(news.tokens));
        choice.pending.clear();
    }
    choice.answer.tokens.insert(choice.answer.tokens.end(), news.tokens.begin(), news.tokens.end());
}

void Reply::emit(News& news, size_t index) {
    news.choice = index;
    news.prompt_tokens = choices_[index].answer.prompt_tokens;
    if (!choices_[index].has_ended) news.job = choices_[index].job.get();
    news.slot = news.job != nullptr ? news.job->slot() : choices_[index].answer.slot;
    take_deltas(choices_[index], news.deltas);
    if (news.deltas.empty() && news.tokens.empty()) return;
    const std::string events = std::visit([&](auto& writer) { return writer.news(news); }, plan_.writer);
    if (!plan_.is_stream || events.empty()) return;
    exchange_->send(events);
    last_sent_ = Clock::now();
}

void Reply::on_tokens(size_t index, std::span<const Token> tokens) {
    const auto now = Clock::now();
    const bool is_first = last_token_ == Clock::time_point{};
    if (is_first) {
        first_token_seconds_ = seconds(now - arrived_);
        tools_.serving->metrics->first_token.add(first_token_seconds_);
    } else if (choices_.size() == 1) {
        const auto count = static_cast<double>(tokens.size());
        tools_.serving->metrics->inter_token.add(seconds(now - last_token_) / count, tokens.size());
    }
    last_token_ = now;
    take_prompt(choices_[index]);

    // Log-probabilities are sent with the text of their own token, even if several tokens came at once.
    const size_t n_together = plan_.keeps_tokens ? 1 : tokens.size();
    for (size_t i = 0; i < tokens.size() && !choices_[index].has_ended; i += n_together)
        take_tokens(index, tokens.subspan(i, n_together));
}

void Reply::take_tokens(size_t index, std::span<const Token> tokens) {
    Choice& choice = choices_[index];
    std::string text;
    for (const Token& token : tokens) {
        text += token.text;
        choice.ids.push_back(token.id);
    }
    tools_.serving->metrics->n_generated += tokens.size();
    News news;
    choice.reader->feed(text, news.deltas);
    if (plan_.keeps_tokens) keep_tokens(choice, tokens, news);
    emit(news, index);
}

// Returns the text of what ended an answer, if the request named it: a stop text, or a token of its own.
std::string Reply::stop_shown(const minim_request_state& state) const {
    if (state.finish == MINIM_FINISH_STOP_TEXT && state.stop_text >= 0)
        return plan_.stops.at(state.stop_text);
    const bool is_own = std::ranges::find(plan_.stop_ids, state.stop_token) != plan_.stop_ids.end();
    return is_own ? tools_.serving->model.token_text(state.stop_token).str() : std::string();
}

void Reply::on_end(size_t index, const JobEnd& end) {
    Choice& choice = choices_[index];
    choice.has_ended = true;
    if (!end.error.empty()) return fail(end.error, end.is_their_error ? 400 : 503);
    if (end.state.finish == MINIM_FINISH_STOPPED) return fail("the server is shutting down");
    const bool is_stop = end.state.finish == MINIM_FINISH_STOP_TEXT;
    ReplyText& answer = choice.answer;
    take_prompt(choice);
    answer.state = end.state;
    answer.slot = end.slot;
    News news;
    if (!is_stop && !choice.pending.empty()) {
        news.tokens = std::exchange(choice.pending, {});
        answer.tokens.insert(answer.tokens.end(), news.tokens.begin(), news.tokens.end());
    }
    if (plan_.shows_stop) choice.reader->feed(stop_shown(end.state), news.deltas);
    answer.finish_reason = choice.reader->finish(end.state.finish, news.deltas);
    if (plan_.shows_end && end.state.stop_token >= 0 && answer.finish_reason != "tool_calls") {
        const Delta::Kind kind = choice.is_reasoning ? Delta::Kind::reasoning : Delta::Kind::content;
        news.deltas.push_back({kind, 0, {}, tools_.serving->model.token_text(end.state.stop_token).str()});
        choice.is_whole = false;  // if the client sends the text back, it does not become the special token
    }
    emit(news, index);
    if (is_stop && end.state.stop_text >= 0) answer.stop_text = plan_.stops.at(end.state.stop_text);
    answer.last_call_is_cut = answer.finish_reason != "tool_calls" && !answer.calls.empty() &&
                              !Json::accept(answer.calls.back().arguments);

    const double queue_seconds =
        static_cast<double>(end.state.queue_us + static_cast<uint64_t>(end.waited_us)) * 1e-6;
    queue_seconds_ = std::max(queue_seconds_, queue_seconds);
    tools_.serving->metrics->queue.add(queue_seconds);
    ++tools_.serving->metrics->finished[answer.finish_reason];
    tools_.serving->metrics->prompt_tokens.add(static_cast<double>(end.state.n_prompt));
    tools_.serving->metrics->generated_tokens.add(static_cast<double>(end.state.n_generated));
    if (index == 0 || choice.job->prompt != choices_[index - 1].job->prompt)
        usage_.n_cached += end.state.n_cached;
    usage_.add_answer(end.state);
    // A turn without reasoning is not remembered: it would also replace turns whose reasoning the template leaves out.
    const bool is_turn = end.state.finish == MINIM_FINISH_END && choice.is_whole && !answer.reasoning.empty();
    if (plan_.is_remembered && is_turn) remember(choice);

    const std::string events =
        std::visit([&](auto& writer) { return writer.end_choice(index, answer); }, plan_.writer);
    if (plan_.is_stream) exchange_->send(events);
    if (--n_left_ == 0) finish();
}

// Remembers the message that the client will send back, and the ids that it stands for.
void Reply::remember(const Choice& choice) {
    const ReplyText& answer = choice.answer;
    Json message = {{"role", "assistant"}, {"content", answer.content}};
    if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
    std::vector<std::string> call_ids;
    for (const Call& call : answer.calls) {
        message["tool_calls"].push_back(call_json(call.id, call.name, call.arguments));
        call_ids.push_back(call.id);
    }
    tools_.workers.post_first([serving = tools_.serving, message = std::move(message),
                               call_ids = std::move(call_ids), reasoning = answer.reasoning,
                               prompt = choice.job->prompt, ids = choice.ids] {
        try {
            if (serving->options.remembers_reasoning && !reasoning.empty())
                for (const std::string& id : call_ids) serving->reasoning.remember(id, reasoning);
            serving->turns.remember(message, *prompt, ids);
        } catch (const std::exception&
                     error) {  // for example out of memory: the next turn evaluates its prompt again
            write_note(fmt::format("an answer was not remembered: {}", error.what()));
        }
    });
}

void Reply::finish() {
    std::vector<ReplyText> answers;
    for (Choice& choice : choices_) answers.push_back(std::move(choice.answer));
    tools_.serving->metrics->n_prompt += usage_.n_prompt;
    tools_.serving->metrics->n_cached += usage_.n_cached;
    tools_.serving->metrics->n_drafted += usage_.n_drafted;
    tools_.serving->metrics->n_drafts_accepted += usage_.n_drafts_accepted;
    tools_.serving->metrics->whole.add(seconds(Clock::now() - arrived_));
    if (plan_.is_stream) {
        exchange_->send(std::visit([&](auto& writer) { return writer.end(answers, usage_); }, plan_.writer));
        exchange_->end_stream();
    } else {
        HttpResponse response;
        response.body = std::visit([&](auto& writer) { return writer.body(answers, usage_); }, plan_.writer);
        exchange_->respond(response);
    }
    done();
}

// Ends the request with an error: the engine ran out of memory or lost a device, the server shuts down, or (400) the request leaves
// no token to choose.
void Reply::fail(const std::string& message, int status) {
    n_left_ = 0;
    if (plan_.is_stream) {
        exchange_->send(std::visit([&](auto& writer) { return writer.error(message); }, plan_.writer));
        exchange_->end_stream();
    } else {
        exchange_->respond(error_response({status, message, "", ""}, plan_.family, exchange_->request.id));
    }
    cancel();
}

void Reply::end(const std::string& error) {
    if (n_left_ > 0) fail(error);
}

void Reply::cancel() {
    const auto self = shared_from_this();
    n_left_ = 0;
    for (Choice& choice : choices_)
        if (choice.job) tools_.serving->jobs.cancel(*choice.job);
    done();
}

void Reply::done() {
    if (on_done_) std::exchange(on_done_, nullptr)();
}

AnswerFigures Reply::figures() const {
    return {tools_.serving->name, usage_.n_prompt,      usage_.n_cached,
            usage_.n_generated,   queue_seconds_ * 1e3, first_token_seconds_ * 1e3};
}

}  // namespace server
