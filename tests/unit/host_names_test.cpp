#include "http/host_names.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

namespace kitty::http {
namespace {

using Names = std::vector<std::string>;

TEST(NamesOfHost, ItsOwnWithTheDomainsThatItTries) {
  EXPECT_EQ(names_of_host("n7", "", ""), (Names{"n7", "n7"}));
  EXPECT_EQ(names_of_host("n7.train.example", "", ""), (Names{"n7.train.example", "n7"}));
  EXPECT_EQ(
      names_of_host("n7", "",
                    "nameserver 10.0.0.1\nsearch train.example\tb.example # c.example\n;search d.example"),
      (Names{"n7", "n7", "n7.train.example", "n7.b.example"}));
  EXPECT_EQ(
      names_of_host("n7", "127.0.0.1 localhost\n10.0.0.7\tn7.train.example N7 gpu7 # n7 x\n10.0.0.8 n8", ""),
      (Names{"n7", "n7", "n7.train.example", "N7", "gpu7"}));
  EXPECT_EQ(names_of_host("", "10.0.0.7 n7", "search x"), Names());
}

TEST(HostNames, ThisHostAndWhatTheUserAllows) {
  char nodename[256] = "";
  ASSERT_EQ(gethostname(nodename, sizeof nodename - 1), 0);
  HostNames names({"kitty.kitty.svc", ".train.example"});
  for (const std::string_view known :
       {std::string_view(nodename), std::string_view("kitty.kitty.svc"), std::string_view("KITTY.kitty.SVC."),
        std::string_view("n0.train.example"), std::string_view("a.b.train.example")})
    EXPECT_TRUE(names.knows(known)) << known;
  for (const std::string& stranger :
       {std::string("train.example"), std::string(".train.example"), std::string("xtrain.example"),
        std::string("kitty"), std::string(nodename) + ".evil.example", "x" + std::string(nodename)}) {
    EXPECT_FALSE(names.knows(stranger)) << stranger;
  }
}

TEST(HostNames, WhatMayBeAllowed) {
  for (const char* good : {"n7", "n7.train.example", ".example", "my_service"})
    EXPECT_TRUE(check_allowed_host(good)) << good;
  for (const std::string& bad : {std::string(), std::string("."), std::string("n7:9100"), std::string("*"),
                                 std::string("http://n7"), std::string("a b"), std::string(254, 'a')})
    EXPECT_FALSE(check_allowed_host(bad)) << bad;
}

}  // namespace
}  // namespace kitty::http
