// SPDX-License-Identifier: Apache-2.0
#include "constraint/string_formats.h"

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/format_text.h"
#include "constraint/regex.h"

namespace minim::constraint {
namespace {

// The alternatives, in order: days 1 to 28, which every month has; days 29 and 30, which every month but February has;
// day 31 of the long months; and leap days. A leap year is divisible by 4 and not by 100, or by 400. There is no year 0.
constexpr std::string_view k_date =
    R"((?:(?!0000)\d{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31))"
    R"(|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29))";

constexpr std::string_view k_hostname_label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
constexpr std::string_view k_ipv4 =
    R"((?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3})";

// A leap second is the last second of a day in UTC. It is accepted with offsets of whole and half hours, whose local
// times are listed.
std::string time_pattern() {
    std::string leap = "23:59:60(?:\\.\\d+)?(?:[Zz]|[+-]00:00)";
    for (int half_hours = -47; half_hours <= 47; ++half_hours) {
        if (half_hours == 0) continue;
        const int minutes = (23 * 60 + 59 + half_hours * 30 + 24 * 60) % (24 * 60);
        const int offset = half_hours < 0 ? -half_hours : half_hours;
        leap += format_text("|{:02}:{:02}:60(?:\\.\\d+)?{}{:02}:{:02}", minutes / 60, minutes % 60,
                            half_hours < 0 ? "-" : "\\+", offset / 2, offset % 2 * 30);
    }
    return format_text(
        R"((?:(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)|{}))", leap);
}

// Up to eight groups, of which :: leaves out one or more; the last two may be an IPv4 address.
std::string ipv6_pattern() {
    constexpr std::string_view k_group = "[0-9A-Fa-f]{1,4}";
    const std::string low = format_text("(?:{0}:{0}|{1})", k_group, k_ipv4);
    std::string pattern = format_text("(?:{}:){{6}}{}", k_group, low);
    pattern += format_text("|::(?:{}:){{5}}{}", k_group, low);
    for (int n_behind = 4; n_behind >= 0; --n_behind) {
        pattern += format_text("|(?:(?:{0}:){{0,{1}}}{0})?::(?:{0}:){{{2}}}{3}", k_group, 4 - n_behind,
                               n_behind, low);
    }
    pattern += format_text("|(?:(?:{0}:){{0,5}}{0})?::{0}|(?:(?:{0}:){{0,6}}{0})?::", k_group);
    return "(?:" + pattern + ")";
}

std::string hostname_pattern() {
    return format_text(R"((?:{0})(?:\.(?:{0}))*)", k_hostname_label);
}

// The labels of a mail domain have no limit of their own in RFC 5321.
std::string email_pattern() {
    constexpr std::string_view k_label = "[A-Za-z0-9](?:-*[A-Za-z0-9])*";
    constexpr std::string_view k_atom = R"([A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)";
    constexpr std::string_view k_quoted = R"("(?:[ !#-\[\]-~]|\\[ -~])*")";
    return format_text(R"((?:{0}(?:\.{0})*|{1})@(?:{2}(?:\.{2})*|\[(?:{3}|IPv6:{4})\]))", k_atom, k_quoted,
                       k_label, k_ipv4, ipv6_pattern());
}

// `letters`: the characters beyond ASCII that may stand unescaped, as written inside brackets. A reference needs no scheme.
std::string uri_pattern(std::string_view letters, bool is_reference) {
    const std::string plain = format_text("-A-Za-z0-9._~!$&'()*+,;={}", letters);
    const std::string escape = "%[0-9A-Fa-f]{2}";
    const std::string path_character = format_text("(?:[{}:@]|{})", plain, escape);
    const std::string segments = format_text("(?:/{}*)*", path_character);
    const std::string authority = format_text(
        R"((?:(?:[{0}:]|{1})*@)?(?:\[(?:{2}|[vV][0-9A-Fa-f]+\.[{0}:]+)\]|(?:[{0}]|{1})*)(?::\d*)?)", plain,
        escape, ipv6_pattern());
    const std::string from_root =
        format_text("//{}{}|/(?:{}+{})?", authority, segments, path_character, segments);
    const std::string tail = format_text("(?:\\?(?:{0}|[/?])*)?(?:#(?:{0}|[/?])*)?", path_character);
    const std::string absolute =
        format_text("[A-Za-z][A-Za-z0-9+.-]*:(?:{}|{}+{}|)", from_root, path_character, segments);
    if (!is_reference) return absolute + tail;
    // A first segment without scheme holds no colon.
    const std::string relative = format_text("(?:{}|(?:[{}@]|{})+{}|)", from_root, plain, escape, segments);
    return format_text("(?:{}|{}){}", absolute, relative, tail);
}

constexpr std::string_view k_duration =
    R"(P(?:\d+W|(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)(?:T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S))?)"
    R"(|T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)))";

constexpr std::string_view k_beyond_ascii =
    R"(\u{A0}-\u{D7FF}\u{F900}-\u{FDCF}\u{FDF0}-\u{FFEF}\u{10000}-\u{EFFFD})";

std::string uri_template_pattern() {
    constexpr std::string_view k_name =
        "(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*";
    const std::string variable = format_text("{}(?::[1-9]\\d{{0,3}}|\\*)?", k_name);
    return format_text(R"((?:[!#$&(-;=?-\[\]_a-z~{0}]|%[0-9A-Fa-f]{{2}}|\{{[+#./;?&=,!@|]?{1}(?:,{1})*\}})*)",
                       k_beyond_ascii, variable);
}

std::optional<std::string> pattern_of_format(std::string_view name) {
    if (name == "date") return std::string(k_date);
    if (name == "time") return time_pattern();
    if (name == "date-time") return std::string(k_date) + "[Tt]" + time_pattern();
    if (name == "duration") return std::string(k_duration);
    if (name == "email") return email_pattern();
    if (name == "hostname") return hostname_pattern();
    if (name == "ipv4") return std::string(k_ipv4);
    if (name == "ipv6") return ipv6_pattern();
    if (name == "uri") return uri_pattern("", false);
    if (name == "uri-reference") return uri_pattern("", true);
    if (name == "iri") return uri_pattern(k_beyond_ascii, false);
    if (name == "iri-reference") return uri_pattern(k_beyond_ascii, true);
    if (name == "uri-template") return uri_template_pattern();
    if (name == "json-pointer") return "(?:/(?:[^~/]|~[01])*)*";
    if (name == "relative-json-pointer") return "(?:0|[1-9]\\d*)(?:#|(?:/(?:[^~/]|~[01])*)*)";
    if (name == "uuid") return "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
    return std::nullopt;
}

}  // namespace

const TextAutomaton* automaton_of_format(std::string_view name) {
    static std::mutex mutex;
    static std::map<std::string, TextAutomaton, std::less<>> known;
    const std::lock_guard lock(mutex);
    const auto place = known.find(name);
    if (place != known.end()) return &place->second;
    const auto pattern = pattern_of_format(name);
    if (!pattern) return nullptr;
    return &known.emplace(name, automaton_of(*pattern, Match::whole, name)).first->second;
}

}  // namespace minim::constraint
