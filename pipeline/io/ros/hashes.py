"""Hashes: what rmw_zenoh calls the exact definition of a message type, by ROS's RIHS01."""

from __future__ import annotations

HASHES = {
    "sensor_msgs/msg/Image": "RIHS01_d31d41a9a4c4bc8eae9be757b0beed306564f7526c88ea6a4588fb9582527d47",
    "vision_msgs/msg/Detection2DArray": "RIHS01_214274120007f4a683866481336b70310268cfa107aebe9d594a6acf75bda968",
    "diagnostic_msgs/msg/DiagnosticArray": "RIHS01_5a8a36efb05fb25070fa0fb3810290c0e6cd4862b54a8fb975a1ee8dc55a333e",
    "soc_pipeline_msgs/msg/Tensor": "RIHS01_58bd3b05241ef89045847b951164764b20a27322849caa647d0cbbad2db40d91",
    "std_msgs/msg/Float32MultiArray": "RIHS01_0599f6f85b4bfca379873a0b4375a0aca022156bd2d7021275d116ed1fa8bfe0",
    "std_msgs/msg/Float64MultiArray": "RIHS01_1025ddc6b9552d191f89ef1a8d2f60f3d373e28b283d8891ddcc974e8c55397f",
    "std_msgs/msg/Int8MultiArray": "RIHS01_f21998d4b492abd63330765d75d5831238d400740386f651f13a872a4d2188db",
    "std_msgs/msg/Int16MultiArray": "RIHS01_b58810e8e5b90fb19a5062469eb8409f5ab11a446d60de7157a1457e52a076ce",
    "std_msgs/msg/Int32MultiArray": "RIHS01_84a7346323525d1b4dfca899df3820f245e54009dac5a6b69217d14fdefd1701",
    "std_msgs/msg/Int64MultiArray": "RIHS01_e60f9fe34d697f0939ad49d33158693c1277fbac0e2f04b7c2995dc21c89b422",
    "std_msgs/msg/UInt8MultiArray": "RIHS01_5687e861b8d307a5e48b7515467ae7a5fc2daf805bd0ce6d8e9e604bade9f385",
    "std_msgs/msg/UInt16MultiArray": "RIHS01_94fe73428ec63baecc774f8fb82406123e9291cf728f1b7c91caf5335129492b",
    "std_msgs/msg/UInt32MultiArray": "RIHS01_6c2577c7ad3cbdcc2164a41c12f1d5ad314ea320f3fb1ee47e78019fe16bb5b0",
    "std_msgs/msg/UInt64MultiArray": "RIHS01_fc1c685c2f76bdc6983da025cb25d2db5fb5157b059e300f6d957d86f981b366",
    "sensor_msgs/msg/CompressedImage": "RIHS01_15640771531571185e2efc8a100baf923961a4d15d5569652e6cb6691e8e371a",
}
"""Type -> hash; a test computes them anew."""
