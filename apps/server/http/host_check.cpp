// SPDX-License-Identifier: Apache-2.0
#include "http/host_check.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include <boost/asio/ip/address.hpp>

namespace server {

namespace {

// Domains that are none of the Internet's: .internal has the names by which containers and virtual machines reach the machine that
// they run on (host.docker.internal), .localdomain is in the hosts file of some systems.
constexpr std::array<std::string_view, 2> k_private_domains = {".internal", ".localdomain"};

std::string lower(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(), [](char c) {
        return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    });
    return out;
}

// Returns a Host field's name without its port, and an address of IPv6 without its brackets.
std::string name_of(std::string_view host) {
    if (host.starts_with('[')) return lower(host.substr(1, host.find(']') - 1));
    const size_t colon = host.find(':');
    const bool has_port =
        colon != std::string_view::npos && host.find(':', colon + 1) == std::string_view::npos;
    std::string name = lower(has_port ? host.substr(0, colon) : host);
    if (name.ends_with('.')) name.pop_back();
    return name;
}

// Returns the part of "http://host:port" after the scheme; "" for another scheme.
std::string_view host_of(std::string_view origin) {
    for (const std::string_view scheme : {"http://", "https://"})
        if (lower(origin.substr(0, scheme.size())) == scheme) return origin.substr(scheme.size());
    return {};
}

bool is_address(const std::string& name) {
    boost::system::error_code error;
    boost::asio::ip::make_address(name, error);
    return !error;
}

bool is_loopback(const std::string& name) {
    if (name == "localhost" || name.ends_with(".localhost")) return true;
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(name, error);
    return !error && address.is_loopback();
}

bool is_private(const std::string& name) {
    return std::ranges::any_of(k_private_domains,
                               [&](std::string_view domain) { return name.ends_with(domain); });
}

// Returns whether a page of this name is served by this machine: 0.0.0.0 reaches it as well.
bool is_own_page(const std::string& name) {
    if (is_loopback(name) || is_private(name)) return true;
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(name, error);
    return !error && address.is_unspecified();
}

std::string machine_name() {
    std::array<char, 256> name{};
    if (gethostname(name.data(), name.size() - 1) != 0) return {};
    return lower(name.data());
}

}  // namespace

HostCheck::HostCheck(std::string listens_at, std::string cors_origin, bool has_key)
    : listens_at_(name_of(listens_at)),
      cors_origin_(std::move(cors_origin)),
      machine_(machine_name()),
      checks_(is_loopback(listens_at_) && cors_origin_ != "*" && !has_key) {}

bool HostCheck::allows_host(std::string_view host) const {
    if (!checks_ || host.empty()) return true;
    const std::string name = name_of(host);
    // A page has the address itself as its name only if it comes from there. A name without a point is none of the Internet's.
    if (is_address(name) || is_loopback(name) || name.find('.') == std::string::npos) return true;
    return name == machine_ || name == listens_at_ || name == name_of(host_of(cors_origin_)) ||
           is_private(name);
}

bool HostCheck::allows_origin(std::string_view origin, std::string_view host) const {
    if (!checks_ || origin.empty()) return true;
    if (origin == cors_origin_) return true;
    const std::string_view from = host_of(origin);
    if (from.empty()) return origin != "null" && origin.find("://") != std::string_view::npos;
    return is_own_page(name_of(from)) || lower(from) == lower(host);
}

}  // namespace server
