// Tests that element types have the names and sizes of the safetensors format.
#include "trainer/layout/element_type.hpp"

#include <gtest/gtest.h>

namespace ddprun::trainer {
namespace {

TEST(ElementType, TableIsInTheOrderOfTheEnum) {
  for (std::size_t i = 0; i < kElementTypes.size(); ++i) EXPECT_EQ(static_cast<std::size_t>(kElementTypes[i].type), i);
}

TEST(ElementType, HasNameAndBytes) {
  EXPECT_EQ(name_of(ElementType::kBf16), "BF16");
  EXPECT_EQ(bytes_of(ElementType::kBf16), 2);
  EXPECT_EQ(bytes_of(ElementType::kF32), 4);
  EXPECT_EQ(bytes_of(ElementType::kBool), 1);
}

TEST(ElementType, IsFoundByItsName) {
  for (const ElementTypeFacts& facts : kElementTypes) EXPECT_EQ(element_type_of(facts.name), facts.type);
  EXPECT_EQ(element_type_of("F8_E4M3"), std::nullopt);
}

}  // namespace
}  // namespace ddprun::trainer
