"""The ground floor: values and helpers of all rooms, importing none of them."""
