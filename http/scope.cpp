#include "http/scope.h"

#include <net/if.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

namespace kitty::http {

ScopedAddress split_scope(std::string_view text) {
  const size_t percent = text.find('%');
  if (percent == std::string_view::npos) return {.address = text};
  return {.address = text.substr(0, percent), .scope = text.substr(percent + 1)};
}

bool is_scope(std::string_view scope) {
  return !scope.empty() && scope.size() < IFNAMSIZ &&
         std::ranges::all_of(
             scope,
             [](char c) {
               return c > ' ' && c <= '~' && std::string_view("/%[]:").find(c) == std::string_view::npos;
             });
}

std::optional<uint32_t> interface_index(std::string_view scope) {
  if (!is_scope(scope)) return std::nullopt;
  if (const uint32_t named = if_nametoindex(std::string(scope).c_str()); named != 0) return named;
  uint32_t index = 0;
  const auto [end, error] = std::from_chars(scope.data(), scope.data() + scope.size(), index);
  std::array<char, IFNAMSIZ> name;
  if (error != std::errc() || end != scope.data() + scope.size()) return std::nullopt;
  if (if_indextoname(index, name.data()) == nullptr) return std::nullopt;
  return index;
}

}  // namespace kitty::http
