# Installs the library into a folder of its own and builds examples/c against it, through find_package and pkg-config,
# then runs both.
#   cmake -DBUILD=... -DSOURCE=... -DWORK=... -DMODEL=... -DGENERATOR=... -P install_test.cmake
file(REMOVE_RECURSE ${WORK})
set(prefix ${WORK}/prefix)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE}/examples/c -B ${WORK}/build -G ${GENERATOR}
                        -DCMAKE_PREFIX_PATH=${prefix} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/build OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK}/build/answer ${MODEL} OUTPUT_VARIABLE answer COMMAND_ERROR_IS_FATAL ANY)
if(NOT answer MATCHES "Paris")
    message(FATAL_ERROR "the installed library answers: ${answer}")
endif()

find_program(pkg_config pkg-config)
if(pkg_config)
    file(GLOB_RECURSE pc ${prefix}/*/minim.pc)
    get_filename_component(pc_folder ${pc} DIRECTORY)
    execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${pc_folder} ${pkg_config} --cflags --libs minim
                    OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    execute_process(COMMAND cc ${SOURCE}/examples/c/answer.c ${flags} -o ${WORK}/answer_pc COMMAND_ERROR_IS_FATAL ANY)
    file(GLOB_RECURSE so ${prefix}/*/libminim.so)
    get_filename_component(folder ${so} DIRECTORY)
    execute_process(COMMAND ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${folder} ${WORK}/answer_pc ${MODEL} OUTPUT_VARIABLE answer
                    COMMAND_ERROR_IS_FATAL ANY)
    if(NOT answer MATCHES "Paris")
        message(FATAL_ERROR "the library found by pkg-config answers: ${answer}")
    endif()
endif()
