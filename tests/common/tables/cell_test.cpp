// Tests which cells are missing values, numbers, truth values, dates or text.
#include "common/tables/cell.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

namespace ddprun {
namespace {

TEST(Cell, MissingValues) {
  for (const char* cell : {"", "?", "NA", "na", "N/A", "NaN", "nan", "null", "NULL", "<NA>", "#N/A"}) {
    EXPECT_TRUE(is_missing(cell, {})) << cell;
  }
  for (const char* cell : {"0", "None", "-", "no", "n", "-999", "NAN1"}) EXPECT_FALSE(is_missing(cell, {})) << cell;
  EXPECT_TRUE(is_missing("-999", {"-999", "none"}));
  EXPECT_FALSE(is_missing("None", {"none"})) << "added texts must match exactly";
}

TEST(Cell, Numbers) {
  for (const auto& [cell, value] : {std::pair{"3", 3.0},
                                    {"-3.5", -3.5},
                                    {"+4", 4.0},
                                    {".5", 0.5},
                                    {"1e3", 1000.0},
                                    {"1,234", 1234.0},
                                    {"-12,345,678.5", -12345678.5},
                                    {"+1,000", 1000.0}}) {
    EXPECT_EQ(number_in(cell), value) << cell;
  }
  for (const char* cell : {"", "x", "1 2", "nan", "inf", "1e39", "-1e39", "0x10", "1,23", "1234,567", "1,2345", ",123",
                           "1,,234", "0,125", "1,234,5", "12%", "$5", "1.234,5", "+-1,234"}) {
    EXPECT_EQ(number_in(cell), std::nullopt) << cell;
  }
}

TEST(Cell, TruthValues) {
  for (const char* cell : {"true", "TRUE", "True", "yes", "YES"}) EXPECT_EQ(truth_in(cell), true) << cell;
  for (const char* cell : {"false", "False", "no", "No"}) EXPECT_EQ(truth_in(cell), false) << cell;
  for (const char* cell : {"", "1", "y", "t", "yes ", "truee"}) EXPECT_EQ(truth_in(cell), std::nullopt) << cell;
}

TEST(Cell, Dates) {
  EXPECT_EQ(date_in("1970-01-01"), 0);
  EXPECT_EQ(date_in("1969-12-31"), -1);
  EXPECT_EQ(date_in("2000-03-01"), 11017);
  EXPECT_EQ(date_in("2024/2/9"), 19762);
  EXPECT_EQ(date_in("2024-02-29"), 19782);
  EXPECT_EQ(date_in("0001-01-01"), -719162);
  EXPECT_EQ(date_in("2024-02-29T12:00"), 19782.5);
  EXPECT_EQ(date_in("2024-02-29 06:00:00Z"), 19782.25);
  EXPECT_EQ(date_in("2024-02-29T06:00:00+06:00"), 19782);
  EXPECT_EQ(date_in("2024-02-29T18:00-0600"), 19783);
  EXPECT_NEAR(date_in("2024-02-29T00:00:01.5").value(), 19782 + 1.5 / 86400, 1e-9);
  for (const char* cell : {"", "2024", "2024-13-01", "2024-00-01", "2023-02-29", "2024-02-30", "2024-02/03", "24-02-29",
                           "2024-02-29x", "0000-01-01", "2024-02-29T", "2024-02-29T24:00", "2024-02-29T12", "2024-02-29T12:60",
                           "2024-02-29T12:00:61", "2024-02-29T12:00+1", "2024-02-29T12:00:", "1900-02-29"}) {
    EXPECT_EQ(date_in(cell), std::nullopt) << cell;
  }
}

TEST(Cell, RefusedForms) {
  const auto why = [](const char* cell) {
    const char* const text = refused_form(cell);
    return std::string(text == nullptr ? "" : text);
  };
  for (const char* cell : {"3,5", "0,125", "-1.234,5", "1234,56", "1.234.567,8"})
    EXPECT_EQ(why(cell), "has a decimal comma") << cell;
  for (const char* cell : {"$5", "$1,234.50", "12 %", "12%", "\xe2\x82\xac 3", "3 \xe2\x82\xac"}) {
    EXPECT_EQ(why(cell), "has a unit") << cell;
  }
  for (const char* cell : {"3/4/2024", "03.04.24", "31-12-2024", "3/4/2024 10:00"}) {
    EXPECT_EQ(why(cell), "is a date whose order of day and month is unknown") << cell;
  }
  for (const char* cell :
       {"", "5", "1,234", "2024-02-29", "abc", "$", "%", "a,b", "1.2.3", "3/4", "10-12", "9-11years", "1st class"}) {
    EXPECT_EQ(why(cell), "") << cell;
  }
}

TEST(Cell, Utf8) {
  EXPECT_TRUE(is_utf8_text("gr\xc3\xbcn"));
  EXPECT_TRUE(is_utf8_text(""));
  EXPECT_FALSE(is_utf8_text("gr\xfcn"));
}

}  // namespace
}  // namespace ddprun
