#include "http/host_names.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/utsname.h>

#include <algorithm>

#include "http/ascii.h"
#include "http/name_files.h"
#include "http/scope.h"

namespace kitty::http {

namespace {

constexpr size_t kMaxNameBytes = 253;  // RFC 1035, 2.3.4

bool is_address(std::string_view host) {
  in_addr v4{};
  in6_addr v6{};
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (!bracketed) return inet_pton(AF_INET, std::string(host).c_str(), &v4) == 1;
  const std::string address(split_scope(host.substr(1, host.size() - 2)).address);
  return inet_pton(AF_INET6, address.c_str(), &v6) == 1;
}

bool matches(std::string_view host, std::string_view allowed) {
  if (!allowed.starts_with('.')) return equals_ignoring_case(host, allowed);
  return host.size() > allowed.size() &&
         equals_ignoring_case(host.substr(host.size() - allowed.size()), allowed);
}

}  // namespace

Status check_allowed_host(std::string_view name) {
  const bool plain = std::ranges::all_of(
      name, [](char c) { return is_alphanumeric(c) || std::string_view("-._").contains(c); });
  if (!name.empty() && name != "." && name.size() <= kMaxNameBytes && plain) return {};
  return fail("use allowed host", name, 0,
              "a name without a port, as in n7.example, or .example for all below it");
}

std::vector<std::string> names_of_host(std::string_view nodename, std::string_view hosts,
                                       std::string_view resolv_conf) {
  std::vector<std::string> names;
  if (nodename.empty()) return names;
  const std::string_view first = nodename.substr(0, nodename.find('.'));
  names.emplace_back(nodename);
  names.emplace_back(first);
  for_each_line(hosts, [&](std::string_view line) {
    std::vector<std::string> listed;
    (void)take_word(line);
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line))
      listed.emplace_back(word);
    const bool ours = std::ranges::any_of(listed, [&](const std::string& one) {
      return equals_ignoring_case(one, nodename) || equals_ignoring_case(one, first);
    });
    if (ours) std::ranges::move(listed, std::back_inserter(names));
  });
  for_each_line(resolv_conf, [&](std::string_view line) {
    const std::string_view keyword = take_word(line);
    if (keyword != "search" && keyword != "domain") return;
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line))
      names.push_back(std::string(first) + '.' + std::string(word));
  });
  return names;
}

HostNames::HostNames(std::vector<std::string> allowed) : allowed_(std::move(allowed)) { learn_own(); }

// A host may be given its name late (DHCP, cloud-init).
void HostNames::learn_own() {
  utsname now{};
  if (uname(&now) != 0 || nodename_ == now.nodename) return;
  nodename_ = now.nodename;
  own_ = names_of_host(nodename_, read_name_file("/etc/hosts"), read_name_file("/etc/resolv.conf"));
}

bool HostNames::knows(std::string_view host) {
  if (host.ends_with('.')) host.remove_suffix(1);  // of the root
  if (host.empty() || is_address(host) || equals_ignoring_case(host, "localhost")) return true;
  if (std::ranges::any_of(allowed_, [host](const std::string& one) { return matches(host, one); }))
    return true;
  learn_own();
  return std::ranges::any_of(own_,
                             [host](const std::string& one) { return equals_ignoring_case(host, one); });
}

}  // namespace kitty::http
