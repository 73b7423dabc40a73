# find_package(musetrace CONFIG): the target musetrace::stamp brings the header musetrace/stamp.cuh to a kernel of your own.
if(NOT TARGET musetrace::stamp)
  add_library(musetrace::stamp INTERFACE IMPORTED)
  get_filename_component(_musetrace_include "${CMAKE_CURRENT_LIST_DIR}/../include" REALPATH)
  set_target_properties(musetrace::stamp PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_musetrace_include}"
    INTERFACE_COMPILE_FEATURES cxx_std_17
    # Job tables are constexpr functions, called in device code.
    INTERFACE_COMPILE_OPTIONS "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>")
  unset(_musetrace_include)
endif()
